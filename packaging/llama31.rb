# Homebrew formula, which builds the last commit of the repository that holds it. Homebrew takes formulae from a tap:
#
#     brew tap-new local/llama31
#     ln -s "$PWD/packaging/llama31.rb" "$(brew --repository local/llama31)/Formula/"
#     brew install --HEAD local/llama31/llama31
class Llama31 < Formula
  desc "Llama 3.1 inference on the CPU"
  license "MIT"
  head "file://#{Pathname(__FILE__).realpath.dirname.parent}", using: :git

  def install
    system "make"
    system "make", "install", "PREFIX=#{prefix}"
  end

  test do
    assert_match "dragon", shell_output("#{bin}/llama31 run -q --raw --echo -n 4 'The little dragon'")
  end
end
