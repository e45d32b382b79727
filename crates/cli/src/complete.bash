_tenure() {
    mapfile -t COMPREPLY < <(TENURE_COMPLETE=bash \
        TENURE_COMPLETE_LINE="${COMP_LINE:0:COMP_POINT}" \
        TENURE_COMPLETE_BREAKS="$COMP_WORDBREAKS" COMPLETER 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/:] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o bashdefault -o default -F _tenure tenure
