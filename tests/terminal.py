"""Runs a program in a pseudo-terminal and emulates the part of a VT100 that the tests of chat need."""
import fcntl, os, pty, re, select, signal, struct, termios, time, unicodedata


def width(char):
    if unicodedata.combining(char) or char in "\u200d\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


class Terminal:
    def __init__(self, argv, rows=24, columns=80, env=None):
        self.rows, self.columns = rows, columns
        self.screen = [[" "] * columns for _ in range(rows)]
        self.row = self.column = 0
        self.raw = b""     # all output
        self.pending = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(env or {})
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the parent may ignore it
            os.execvp(argv[0], argv)
        self.resize(rows, columns)

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        grown = [row[:columns] + [" "] * (columns - len(row)) for row in self.screen]
        extra = max(0, self.row + 1 - rows)
        self.screen = (grown[extra:] + [[" "] * columns for _ in range(rows)])[:rows]
        self.rows, self.columns = rows, columns
        self.row, self.column = self.row - extra, min(self.column, columns - 1)

    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.screen).rstrip()

    def send(self, text):
        data = text.encode() if isinstance(text, str) else text
        while data:
            n = os.write(self.fd, data[:256])
            data = data[n:]
            if data:
                self.read(0)

    def read(self, seconds):
        """Processes output that arrives within `seconds`; False at the end."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.raw += data
        self.pending += data
        self.feed()
        return bool(data)

    def wait(self, what, seconds=20):
        """Waits until the screen shows the text `what`, or what() is true; returns whether it did."""
        end = time.time() + seconds
        is_there = what if callable(what) else lambda: what in self.text()
        while not is_there():
            if time.time() > end or not self.read(0.05):
                return is_there()
        return True

    def line_feed(self):
        if self.row == self.rows - 1:
            self.screen = self.screen[1:] + [[" "] * self.columns]
        else:
            self.row += 1

    def put(self, char):
        n = width(char)
        if self.column + n > self.columns:
            self.column = 0
            self.line_feed()
        if n == 0:
            if self.column:
                self.screen[self.row][self.column - 1] += char
            return
        self.screen[self.row][self.column] = char
        if n == 2:
            self.screen[self.row][self.column + 1] = ""
        self.column += n

    def feed(self):
        # One item per turn: a sequence, a control byte or a character. Incomplete ones wait for more bytes.
        while self.pending:
            byte = self.pending[0]
            if self.pending[:2] in (b"\x1b=", b"\x1b>"):  # keypad modes
                self.pending = self.pending[2:]
            elif self.pending.startswith(b"\x1b]"):  # an operating system command, such as OSC 52
                if b"\x07" not in self.pending:
                    return
                self.pending = self.pending[self.pending.index(b"\x07") + 1:]
            elif byte == 27:
                match = re.match(rb"\x1b\[([?0-9;]*)([A-Za-z~])", self.pending)
                if not match:
                    if len(self.pending) < 8:
                        return
                    raise ValueError("escape sequence %r" % self.pending[:16])
                self.pending = self.pending[match.end():]
                self.control(match.group(1).decode(), match.group(2).decode())
            elif byte < 32:
                self.pending = self.pending[1:]
                if byte == 13:
                    self.column = 0
                elif byte == 10:
                    self.line_feed()
                elif byte == 8:
                    self.column = max(0, self.column - 1)
            else:
                n = 1 if byte < 0x80 else 4 if byte >= 0xf0 else 3 if byte >= 0xe0 else 2
                if len(self.pending) < n:
                    return
                char, self.pending = self.pending[:n], self.pending[n:]
                self.put(char.decode("utf-8", "replace")[0])

    def control(self, arguments, final):
        n = int(arguments) if arguments.isdigit() else 0
        if final == "A":
            self.row = max(0, self.row - max(1, n))
        elif final == "C":
            self.column = min(self.columns - 1, self.column + max(1, n))
        elif final == "K":
            self.screen[self.row][self.column:] = [" "] * (self.columns - self.column)
        elif final == "J":
            first = self.row if n == 0 else 0
            if n == 0:
                self.control("", "K")
                first += 1
            for row in range(first, self.rows):
                self.screen[row] = [" "] * self.columns
        elif final == "H":
            self.row = self.column = 0

    def close(self):
        """Kills the program if it runs; returns its wait status."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except OSError:
            pass
        os.close(self.fd)
        return os.waitpid(self.pid, 0)[1]

    def status(self, seconds=10):
        """The exit status of a program that ends within `seconds`, or None."""
        end = time.time() + seconds
        while time.time() < end:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        return None
