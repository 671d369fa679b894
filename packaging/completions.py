"""Completions of commands, flags, the values that the parser knows, and preset names. Files are
offered for everything else."""

import shlex


def words(items):
    return shlex.quote(" ".join(items))


def brief(text, most=70):
    """The beginning of a description, for a list of candidates."""
    first = " ".join(text.split()).split("; ")[0]
    return first if len(first) <= most else first[:most].rsplit(" ", 1)[0] + " ..."


def cases(program, row):
    """The branches of a shell's `case` over the path of commands: row(command) is a list of lines."""
    lines = []
    for command in program.walk():
        lines.append(f"    {shlex.quote(' '.join(command.path[1:]))})")
        lines += [f"      {line}" for line in row(command)] + ["      ;;"]
    return "\n".join(lines)


def bash_row(command):
    yield f"flags={words(name for option in command.flags for name in option.names)}"
    if command.commands:
        yield f"commands={words(below.path[-1] for below in command.commands)}"
    if command.takes_model:
        yield "model=1"
    yield 'case "$previous" in'
    for option in command.flags:
        if option.value:
            chosen = f"values={words(option.choices)}" if option.choices else "files=1"
            yield f"  {'|'.join(option.names)}) {chosen} ;;"
    yield "esac"


BASH = r"""# Completion of pinion's command line, made from its help texts.
_pinion() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} path='' word
  local flags='' commands='' values='' files='' model=''
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "${path:+$path }$word" in
    @PATHS@) path="${path:+$path }$word" ;;
    esac
  done
  # bash splits words at '=' and ':' as well: --mode=serving, preset:tiny.
  if [[ $current == '=' ]]; then
    current=''
  elif [[ $previous == '=' ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  COMPREPLY=()
  if [[ $current == ':' && $previous == preset ]]; then
    mapfile -t COMPREPLY < <(compgen -W @PRESETS@)
    return
  elif [[ $previous == ':' && ${COMP_WORDS[COMP_CWORD - 2]} == preset ]]; then
    mapfile -t COMPREPLY < <(compgen -W @PRESETS@ -- "$current")
    return
  fi
  case "$path" in
@CASES@
  esac
  if [[ -n $values ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
  elif [[ -z $files && $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$current")
  elif [[ -z $files && -n $commands ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
  else
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
    if [[ -z $files && -n $model && preset: == "$current"* ]]; then
      compopt -o nospace 2>/dev/null
      COMPREPLY+=(preset:)
    fi
  fi
}
complete -F _pinion pinion
"""


def bash(program, presets):
    paths = "|".join(shlex.quote(" ".join(command.path[1:])) for command in program.walk() if command.path[1:])
    return (BASH.replace("@PATHS@", paths).replace("@PRESETS@", words(presets))
            .replace("@CASES@", cases(program, bash_row)))


def zsh_text(text):
    for letter in "\\[]:":
        text = text.replace(letter, "\\" + letter)
    return text


def zsh_flag(option):
    for name in option.names:
        value = ""
        if option.value:
            action = f"({' '.join(option.choices)})" if option.choices else "_files"
            value = f":{zsh_text(option.value)}:{action}"
        yield shlex.quote(f"{'*' if option.repeated else ''}{name}[{zsh_text(brief(option.description))}]{value}")


def zsh_row(command):
    lines = [specification for option in command.flags for specification in zsh_flag(option)]
    if command.commands:
        described = " ".join(f'{below.path[-1]}\\:{shlex.quote(brief(below.description))}' for below in command.commands)
        lines += [shlex.quote(f"1:command:(({described}))"), shlex.quote("*::argument:->below")]
    elif command.takes_model:
        lines.append(shlex.quote("*:model:_pinion_model"))
    else:
        lines.append(shlex.quote("*:file:_files"))
    return ["_arguments -C " + " \\\n        ".join(lines)]


ZSH = r"""#compdef pinion
# Completion of pinion's command line, made from its help texts.
_pinion_model() {
  local -a presets=(@PRESETS@)
  _alternative 'presets:preset:compadd -a presets' 'files:file:_files'
}

_pinion() {
  local context state line command=$1
  case "$command" in
@CASES@
  esac
  if [[ $state == below ]]; then
    _pinion "${command:+$command }$line[1]"
  fi
}
_pinion ''
"""


def zsh(program, presets):
    return (ZSH.replace("@PRESETS@", " ".join(shlex.quote(f"preset:{name}") for name in presets))
            .replace("@CASES@", cases(program, zsh_row)))


def fish_text(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish_condition(command):
    if len(command.path) == 1:
        return "__fish_use_subcommand"
    seen = [f"__fish_seen_subcommand_from {name}" for name in command.path[1:]]
    if command.commands:
        below = " ".join(other.path[-1] for other in command.commands)
        seen.append(f"not __fish_seen_subcommand_from {below}")
    return "; and ".join(seen)


def fish_flag(option):
    parts = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    if option.choices:
        parts.append(f"-x -a {fish_text(' '.join(option.choices))}")
    elif option.value:
        parts.append("-r")
    return " ".join(parts) + f" -d {fish_text(brief(option.description))}"


def fish(program, presets):
    lines = ["# Completion of pinion's command line, made from its help texts."]
    for command in program.walk():
        condition = f"complete -c pinion -n {fish_text(fish_condition(command))}"
        for below in command.commands:
            lines.append(f"{condition} -f -a {below.path[-1]} -d {fish_text(brief(below.description))}")
        lines += [f"{condition} {fish_flag(option)}" for option in command.flags]
        if command.takes_model:
            lines.append(f"{condition} -a {fish_text(' '.join(f'preset:{name}' for name in presets))}")
    return "\n".join(lines) + "\n"
