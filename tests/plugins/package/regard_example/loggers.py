"""A logger that appends lines to a file."""

from regard.training.loggers import Logger


class Lines(Logger):
    """Writes RUN/lines.txt."""

    def log(self, step, values):
        with open(self.run / "lines.txt", "a") as file:
            file.writelines(f"{step} {name} {value}\n" for name, value in values.items())
