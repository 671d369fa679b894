"""Man pages: pinion(1), and one for each command as pinion-sweep(1). See man(7) for the macros."""


def roff(text):
    """Text that the typesetter takes literally, in one line."""
    text = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def verbatim(text):
    lines = [line.replace("\\", "\\e").replace("-", "\\-") for line in text.strip("\n").splitlines()]
    return [".nf", *("\\&" + line if line[:1] in (".", "'") else line for line in lines), ".fi"]


def bold(text):
    return f"\\fB{roff(text)}\\fR"


def italic(text):
    return f"\\fI{roff(text)}\\fR"


def sentence(text):
    return text if text.endswith((".", "?", "!")) else text + "."


def option_lines(option):
    if option.positional:
        head = italic(option.names[0])
    else:
        head = ", ".join(bold(name) for name in option.names)
        head += f" {italic(option.value)}" if option.value else ""
    said = sentence(option.description)
    if option.choices:
        said += f" One of {', '.join(option.choices)}."
    if option.default:
        said += f" Default: {option.default}."
    if option.required and not option.positional:
        said += " Required."
    return [".TP", head, roff(said)]


def option_sections(command):
    lines = []
    if command.positionals:
        lines.append(".SH ARGUMENTS")
        for option in command.positionals:
            lines += option_lines(option)
    group = None
    for option in sorted(command.flags, key=lambda option: option.group != "Options"):
        if option.group != group:
            lines.append(".SH OPTIONS" if option.group == "Options" else f'.SS "{roff(option.group)}"')
        group = option.group
        lines += option_lines(option)
    return lines


def synopsis(command):
    words = [bold(" ".join(command.path))]
    if command.flags:
        words.append(f"[{italic('OPTIONS')}]")
    for option in command.positionals:
        word = italic(option.names[0]) + ("..." if option.repeated else "")
        words.append(word if option.required else f"[{word}]")
    if command.commands:
        words.append(italic("COMMAND"))
    return " ".join(words)


def nested(command):
    """A command of a command, as a section of its page."""
    lines = [f'.SH "{roff(" ".join(command.path[1:])).upper()}"', roff(sentence(command.description)),
             ".PP", synopsis(command)]
    # Its headings stand below its own.
    return lines + [line.replace(".SH ", ".SS ", 1) for line in option_sections(command)]


def command_list(command):
    lines = [".SH COMMANDS"]
    for below in command.commands:
        page = bold("-".join(below.path)) + "(1)" if len(command.path) == 1 else bold(" ".join(below.path))
        lines += [".TP", page, roff(sentence(below.description))]
    return lines


def page(command, version, see_also):
    name = "-".join(command.path)
    lines = [f'.TH "{roff(name).upper()}" 1 "" "Pinion {version}" "User Commands"',
             ".SH NAME", f"{roff(name)} \\- {roff(command.description)}",
             ".SH SYNOPSIS", synopsis(command), *option_sections(command)]
    if command.commands:
        lines += command_list(command)
    if len(command.path) > 1:
        for below in command.commands:
            lines += nested(below)
    if command.footer:
        lines += [".SH NOTES", *verbatim(command.footer)]
    lines += [".SH SEE ALSO", ", ".join(f"{bold(other)}(1)" for other in see_also if other != name)]
    return "\n".join(lines) + "\n"


def pages(program, version):
    """Text by name: "pinion", "pinion-sweep"."""
    names = ["-".join(command.path) for command in (program, *program.commands)]
    return {"-".join(command.path): page(command, version, names if command is program else names[:1])
            for command in (program, *program.commands)}
