# Runs one server for an owner that may vanish at any moment.
#
# Argument: the folder to remove at the end.
# Standard input: one command a line; each is answered by one line. The owner holds the other end,
# so that end of input means that the owner is gone, however it went.
#
#   start WORDS   run these quoted words in the background; answers the process id
#   one SIGNAL    signal the server
#   all SIGNAL    signal the server and its children
#   status        the exit status of a server that has ended

# Ctrl-C is for the owner, and an owner that died before reading an answer is no reason to die.
trap '' INT TERM HUP PIPE
folder=$1
server=

# A server under libfaketime that was killed leaves these behind.
reap() {
    wait "$server" 2>/dev/null
    ended=$?
    rm -f "/dev/shm/faketime_shm_$server" "/dev/shm/sem.faketime_sem_$server"
    server=
}

# The server is stopped first, so that it starts no child between the listing and the signal.
signal_all() {
    kill -s STOP "$server"
    # Unquoted on purpose: a list of process ids.
    # shellcheck disable=SC2046
    kill -s "$1" "$server" $(cat "/proc/$server/task/$server/children")
}

while read -r verb words; do
    case $verb in
    start)
        [ -z "$server" ] || reap
        eval "set -- $words"
        (
            trap - INT TERM HUP PIPE
            exec "$@" >>"$folder/log" 2>&1
        ) &
        server=$!
        echo "$server"
        ;;
    one)
        kill -s "$words" "$server"
        echo done
        ;;
    all)
        signal_all "$words"
        echo done
        ;;
    status)
        reap
        echo "$ended"
        ;;
    esac
done

if [ -n "$server" ]; then
    signal_all KILL
    reap
fi
# Under Patroni PostgreSQL is nobody's child.
left=$(sed -n 1p "$folder/data/postmaster.pid")
if [ -n "$left" ] && [ "$(readlink "/proc/$left/cwd")" = "$folder/data" ]; then
    kill -s KILL "$left"
fi
# A killed PostgreSQL leaves its System V memory behind; line seven of its lock file names it.
segment=$(sed -n '7s/.* //p' "$folder/data/postmaster.pid")
[ -z "$segment" ] || ipcrm -m "$segment"
# Orphans of a killed server may write for a moment longer.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf "$folder" && break
    sleep 0.2
done
