# Nix flake. From the root of the repository: nix build '.?dir=packaging'
{
  description = "Llama 3.1 inference on the CPU";
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";
  outputs = { self, nixpkgs }: {
    packages = nixpkgs.lib.genAttrs [ "x86_64-linux" "aarch64-linux" "x86_64-darwin" "aarch64-darwin" ] (system: {
      default = nixpkgs.legacyPackages.${system}.stdenv.mkDerivation {
        pname = "llama31";
        version = nixpkgs.lib.fileContents ../VERSION;
        src = ../.;
        makeFlags = [ "COMMIT=${self.shortRev or "unknown"}" "PREFIX=${placeholder "out"}" ];
        enableParallelBuilding = true;
        meta.mainProgram = "llama31";
      };
    });
  };
}
