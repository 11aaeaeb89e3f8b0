# bash completion for sluice. What there is to offer, `sluice __complete` says.

_sluice() {
  local -a words=() found=()
  local i at word line prefix="" program=${COMP_WORDS[0]}
  # Readline splits at "=", and at ":" too.
  for ((i = 1; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    at=${#words[@]}
    if ((i > 1)) && [[ $word == [=:]* || ${COMP_WORDS[i - 1]} == [=:] ]]; then
      words[at - 1]+=$word
    else
      words+=("$word")
    fi
  done
  word=${words[${#words[@]} - 1]}
  [[ $word == *[=:]* ]] && prefix=${word%"${word##*[=:]}"}

  COMPREPLY=()
  mapfile -t found < <("${program/#\~/$HOME}" __complete "${words[@]}" 2>/dev/null)
  for line in "${found[@]}"; do
    case $line in
      ":command "*)
        if declare -F _command_offset >/dev/null; then
          for ((i = 1; i < COMP_CWORD; i++)); do [[ ${COMP_WORDS[i]} == -- ]] && break; done
          _command_offset $((i + 1))
        elif ((${#words[@]} - 1 == ${line#:command })); then
          mapfile -t COMPREPLY < <(compgen -c -- "$word")
        else
          mapfile -t COMPREPLY < <(compgen -f -- "$word")
        fi
        return
        ;;
      ":files"*)
        compopt -o filenames 2>/dev/null
        line=${line#:files}
        word=${word#"$prefix"}
        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(
          compgen -d -- "$word"
          if [[ -n $line ]]; then compgen -f -X "!${line# }" -- "$word"; else compgen -f -- "$word"; fi
        )
        ;;
      *) COMPREPLY+=("${line%%$'\t'*}") ;;
    esac
  done
  COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
}
complete -F _sluice sluice
