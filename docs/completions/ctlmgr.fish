# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_ctlmgr_global_optspecs
    string join \n json socket= h/help V/version
end

function __fish_ctlmgr_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_ctlmgr_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_ctlmgr_using_subcommand
    set -l cmd (__fish_ctlmgr_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -s V -l version -d 'Print version'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "status" -d 'Show mode, capacity and every workload: what it holds, needs and may keep'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "why" -d 'Explain what is decided about a workload, and what was done'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "plan" -d 'Show what ctlmgr would do now'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "what-if" -d 'Show who would keep what after a change, if all felt as they do now, without making it'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "record" -d 'Write what deciding depends on to a file, one JSON object a line, for `replay`'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "replay" -d 'Decide again what a recording holds, and show what comes out differently'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "diff" -d 'Show every value that differs from before ctlmgr. Exit status 0 also if there are some'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "revert" -d 'Put back every value that ctlmgr wrote; with a daemon all jobs only observe until reboot'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "mode" -d 'Show or change what a job may do, until reboot'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "weight" -d 'Show or change the weight of a workload, until reboot'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "config" -d 'Check or show the configuration; needs no daemon'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "doctor" -d 'Examine this host: what stops ctlmgr from working, and what to do about it'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "memory" -d 'The memory job: watch it, or compute shares without a daemon'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "queue" -d 'Show which containers wait to start, for what and how long, and which start now'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "profile" -d 'Show what was learned of starts, or take it from one host to another'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "docker" -d 'Have dockerd ask ctlmgr before it starts a container, or not'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "batch" -d 'Batches of containers that start together: plan them, or start them so'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "topology" -d 'Show which processors share a last-level cache, a node and a socket; needs no daemon'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "coalesce" -d 'Two containers that talk much as one'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "bench" -d 'Measure this machine; needs no daemon'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "place" -d 'Workloads on L3 domains'
complete -c ctlmgr -n "__fish_ctlmgr_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand status" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand status" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand status" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand why" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand why" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand why" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand plan" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand plan" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand plan" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand what-if" -l weight -d 'NAME=WEIGHT: give a workload another weight, 1–10000 or a class' -r
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand what-if" -l capacity -d 'Share out this much, or more or less than now: 8G, +2G, -2G' -r
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand what-if" -l add -d 'SIZE@WEIGHT: add a workload that needs this much, and was promised it' -r
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand what-if" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand what-if" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand what-if" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand record" -l seconds -d 'Stop after this many seconds; Ctrl-C stops too' -r
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand record" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand record" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand record" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand replay" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand replay" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand replay" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand diff" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand diff" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand diff" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand revert" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand revert" -l offline -d 'Do not ask the daemon, read its journal; also done by itself if no daemon runs'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand revert" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand revert" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand mode" -l job -d 'Which job' -r -f -a "memory\t''
starts\t''
place\t''"
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand mode" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand mode" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand mode" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand weight" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand weight" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand weight" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand config; and not __fish_seen_subcommand_from check show help" -l root -d 'Read it below this directory instead of /' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand config; and not __fish_seen_subcommand_from check show help" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand config; and not __fish_seen_subcommand_from check show help" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand config; and not __fish_seen_subcommand_from check show help" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand config; and not __fish_seen_subcommand_from check show help" -f -a "check" -d 'Say everything that is wrong, with file, line and key. Exit status 2 if anything is'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand config; and not __fish_seen_subcommand_from check show help" -f -a "show" -d 'Show all settings in force, defaults included, as a file that would set them'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand config; and not __fish_seen_subcommand_from check show help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand config; and __fish_seen_subcommand_from check" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand config; and __fish_seen_subcommand_from check" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand config; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand config; and __fish_seen_subcommand_from show" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand config; and __fish_seen_subcommand_from show" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand config; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "check" -d 'Say everything that is wrong, with file, line and key. Exit status 2 if anything is'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show all settings in force, defaults included, as a file that would set them'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand doctor" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand doctor" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand memory; and not __fish_seen_subcommand_from top plan help" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand memory; and not __fish_seen_subcommand_from top plan help" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand memory; and not __fish_seen_subcommand_from top plan help" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand memory; and not __fish_seen_subcommand_from top plan help" -f -a "top" -d 'Show who needs, keeps and misses what, again and again'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand memory; and not __fish_seen_subcommand_from top plan help" -f -a "plan" -d 'Divide a capacity among workloads by weight, and nothing else'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand memory; and not __fish_seen_subcommand_from top plan help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand memory; and __fish_seen_subcommand_from top" -l every -d 'Seconds between two looks' -r
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand memory; and __fish_seen_subcommand_from top" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand memory; and __fish_seen_subcommand_from top" -l once -d 'Look once; also done by itself where the output is no terminal'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand memory; and __fish_seen_subcommand_from top" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand memory; and __fish_seen_subcommand_from top" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand memory; and __fish_seen_subcommand_from plan" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand memory; and __fish_seen_subcommand_from plan" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand memory; and __fish_seen_subcommand_from plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand memory; and __fish_seen_subcommand_from help" -f -a "top" -d 'Show who needs, keeps and misses what, again and again'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand memory; and __fish_seen_subcommand_from help" -f -a "plan" -d 'Divide a capacity among workloads by weight, and nothing else'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand memory; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and not __fish_seen_subcommand_from watch skip cancel release hold help" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and not __fish_seen_subcommand_from watch skip cancel release hold help" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and not __fish_seen_subcommand_from watch skip cancel release hold help" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and not __fish_seen_subcommand_from watch skip cancel release hold help" -f -a "watch" -d 'Show it again at every change'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and not __fish_seen_subcommand_from watch skip cancel release hold help" -f -a "skip" -d 'Let a container start now'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and not __fish_seen_subcommand_from watch skip cancel release hold help" -f -a "cancel" -d 'Refuse the start of a container that waits; its client is told'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and not __fish_seen_subcommand_from watch skip cancel release hold help" -f -a "release" -d 'Let everybody start who waits now, and end `hold`'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and not __fish_seen_subcommand_from watch skip cancel release hold help" -f -a "hold" -d 'Hold all starts, each for its longest wait at most'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and not __fish_seen_subcommand_from watch skip cancel release hold help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from watch" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from watch" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from watch" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from skip" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from skip" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from skip" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from cancel" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from cancel" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from cancel" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from release" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from release" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from release" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from hold" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from hold" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from hold" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from help" -f -a "watch" -d 'Show it again at every change'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from help" -f -a "skip" -d 'Let a container start now'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from help" -f -a "cancel" -d 'Refuse the start of a container that waits; its client is told'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from help" -f -a "release" -d 'Let everybody start who waits now, and end `hold`'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from help" -f -a "hold" -d 'Hold all starts, each for its longest wait at most'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand queue; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and not __fish_seen_subcommand_from list show forget export import help" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and not __fish_seen_subcommand_from list show forget export import help" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and not __fish_seen_subcommand_from list show forget export import help" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and not __fish_seen_subcommand_from list show forget export import help" -f -a "list" -d 'Show all of them'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and not __fish_seen_subcommand_from list show forget export import help" -f -a "show" -d 'Show one with all figures'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and not __fish_seen_subcommand_from list show forget export import help" -f -a "forget" -d 'Forget one; it is learned anew'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and not __fish_seen_subcommand_from list show forget export import help" -f -a "export" -d 'Write all of them to a file'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and not __fish_seen_subcommand_from list show forget export import help" -f -a "import" -d 'Read profiles from a file that `export` wrote; those of the same key are replaced'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and not __fish_seen_subcommand_from list show forget export import help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from list" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from list" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from show" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from show" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from forget" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from forget" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from forget" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from export" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from export" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from export" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from import" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from import" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from import" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from help" -f -a "list" -d 'Show all of them'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show one with all figures'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from help" -f -a "forget" -d 'Forget one; it is learned anew'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from help" -f -a "export" -d 'Write all of them to a file'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from help" -f -a "import" -d 'Read profiles from a file that `export` wrote; those of the same key are replaced'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand profile; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and not __fish_seen_subcommand_from enable disable status help" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and not __fish_seen_subcommand_from enable disable status help" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and not __fish_seen_subcommand_from enable disable status help" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and not __fish_seen_subcommand_from enable disable status help" -f -a "enable" -d 'Have dockerd ask before every start, by its authorization plugin'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and not __fish_seen_subcommand_from enable disable status help" -f -a "disable" -d 'Have dockerd do without ctlmgr, and put its configuration back'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and not __fish_seen_subcommand_from enable disable status help" -f -a "status" -d 'Show what dockerd\'s configuration says'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and not __fish_seen_subcommand_from enable disable status help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and __fish_seen_subcommand_from enable" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and __fish_seen_subcommand_from enable" -l runtime -d 'Also wrap the runtime of containers created from now on, so that restarts and the boot, which dockerd makes by itself, are asked for too'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and __fish_seen_subcommand_from enable" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and __fish_seen_subcommand_from enable" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and __fish_seen_subcommand_from disable" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and __fish_seen_subcommand_from disable" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and __fish_seen_subcommand_from disable" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and __fish_seen_subcommand_from status" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and __fish_seen_subcommand_from status" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and __fish_seen_subcommand_from help" -f -a "enable" -d 'Have dockerd ask before every start, by its authorization plugin'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and __fish_seen_subcommand_from help" -f -a "disable" -d 'Have dockerd do without ctlmgr, and put its configuration back'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and __fish_seen_subcommand_from help" -f -a "status" -d 'Show what dockerd\'s configuration says'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand docker; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and not __fish_seen_subcommand_from plan run sample penalties help" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and not __fish_seen_subcommand_from plan run sample penalties help" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and not __fish_seen_subcommand_from plan run sample penalties help" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and not __fish_seen_subcommand_from plan run sample penalties help" -f -a "plan" -d 'Divide containers into batches that do not fight, and nothing else'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and not __fish_seen_subcommand_from plan run sample penalties help" -f -a "run" -d 'Start containers that exist batch by batch'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and not __fish_seen_subcommand_from plan run sample penalties help" -f -a "sample" -d 'Run each image alone for a while, so that its character is known before it matters'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and not __fish_seen_subcommand_from plan run sample penalties help" -f -a "penalties" -d 'Show what characters cost each other when they start together, learned and by guideline'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and not __fish_seen_subcommand_from plan run sample penalties help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from plan" -l rounds -d 'Stop after so many rounds of search, in place of the time limit: the same plan every time' -r
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from plan" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from plan" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from run" -l compose -d 'In place of FILE: the services of a compose file, planned with what was learned of them. Their containers are made where they are not there' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from run" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from run" -l dry-run -d 'Show the plan, and start nothing'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from run" -l strict -d 'Start nobody of a batch before all of the one before are over'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from run" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from sample" -l seconds -d 'How long each of them runs, at most' -r
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from sample" -l run-option -d 'An option for `docker run`, such as --env=PASSWORD=x; may be given several times' -r
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from sample" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from sample" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from sample" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from penalties" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from penalties" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from penalties" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from help" -f -a "plan" -d 'Divide containers into batches that do not fight, and nothing else'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from help" -f -a "run" -d 'Start containers that exist batch by batch'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from help" -f -a "sample" -d 'Run each image alone for a while, so that its character is known before it matters'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from help" -f -a "penalties" -d 'Show what characters cost each other when they start together, learned and by guideline'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand batch; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand topology" -l root -d 'Read it below this directory instead of /' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand topology" -l svg -d 'Draw it into this file, too' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand topology" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand topology" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand topology" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand coalesce; and not __fish_seen_subcommand_from advise build help" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand coalesce; and not __fish_seen_subcommand_from advise build help" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand coalesce; and not __fish_seen_subcommand_from advise build help" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand coalesce; and not __fish_seen_subcommand_from advise build help" -f -a "advise" -d 'Say which pairs of containers talk most, whether each could be one container, and if not, why not'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand coalesce; and not __fish_seen_subcommand_from advise build help" -f -a "build" -d 'Build an image that runs both of two containers, the first one first, and say how to run it'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand coalesce; and not __fish_seen_subcommand_from advise build help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand coalesce; and __fish_seen_subcommand_from advise" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand coalesce; and __fish_seen_subcommand_from advise" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand coalesce; and __fish_seen_subcommand_from advise" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand coalesce; and __fish_seen_subcommand_from build" -s t -l tag -d 'Name of the new image' -r
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand coalesce; and __fish_seen_subcommand_from build" -s o -l output -d 'The compose override, for containers of a compose project' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand coalesce; and __fish_seen_subcommand_from build" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand coalesce; and __fish_seen_subcommand_from build" -l replace -d 'Replace an image of that name, and the file'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand coalesce; and __fish_seen_subcommand_from build" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand coalesce; and __fish_seen_subcommand_from build" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand coalesce; and __fish_seen_subcommand_from help" -f -a "advise" -d 'Say which pairs of containers talk most, whether each could be one container, and if not, why not'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand coalesce; and __fish_seen_subcommand_from help" -f -a "build" -d 'Build an image that runs both of two containers, the first one first, and say how to run it'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand coalesce; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand bench; and not __fish_seen_subcommand_from l3 help" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand bench; and not __fish_seen_subcommand_from l3 help" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand bench; and not __fish_seen_subcommand_from l3 help" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand bench; and not __fish_seen_subcommand_from l3 help" -f -a "l3" -d 'Measure what messages between processors cost, by which caches they share'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand bench; and not __fish_seen_subcommand_from l3 help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand bench; and __fish_seen_subcommand_from l3" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand bench; and __fish_seen_subcommand_from l3" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand bench; and __fish_seen_subcommand_from l3" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "l3" -d 'Measure what messages between processors cost, by which caches they share'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and not __fish_seen_subcommand_from show graph suggest plan help" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and not __fish_seen_subcommand_from show graph suggest plan help" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and not __fish_seen_subcommand_from show graph suggest plan help" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and not __fish_seen_subcommand_from show graph suggest plan help" -f -a "show" -d 'Show which containers run on which processors, and why; needs ctlmgrd'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and not __fish_seen_subcommand_from show graph suggest plan help" -f -a "graph" -d 'Show which containers talk to each other, and how much; needs ctlmgrd, and place.traffic'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and not __fish_seen_subcommand_from show graph suggest plan help" -f -a "suggest" -d 'Say on which L3 domain each container would be near those that it talks to, from the traffic and the CPU use of now. Changes nothing'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and not __fish_seen_subcommand_from show graph suggest plan help" -f -a "plan" -d 'Assign workloads to L3 domains, so that those that talk to each other are near, and nothing else'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and not __fish_seen_subcommand_from show graph suggest plan help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from show" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from show" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from graph" -l svg -d 'Draw it into this file, domain by domain' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from graph" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from graph" -l dot -d 'In the language of Graphviz'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from graph" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from graph" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from suggest" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from suggest" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from suggest" -s h -l help -d 'Print help'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from plan" -l rounds -d 'Stop after so many rounds of search, in place of the time limit: the same plan every time' -r
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from plan" -l prove -d 'Have an exact solver look for something better for so long, or prove that there is nothing: seconds for some forty workloads on four domains, and often too long for more' -r
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from plan" -l socket -d 'Socket of the daemon' -r -F
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from plan" -l json -d 'Print JSON instead of text'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show which containers run on which processors, and why; needs ctlmgrd'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from help" -f -a "graph" -d 'Show which containers talk to each other, and how much; needs ctlmgrd, and place.traffic'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from help" -f -a "suggest" -d 'Say on which L3 domain each container would be near those that it talks to, from the traffic and the CPU use of now. Changes nothing'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from help" -f -a "plan" -d 'Assign workloads to L3 domains, so that those that talk to each other are near, and nothing else'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand place; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "status" -d 'Show mode, capacity and every workload: what it holds, needs and may keep'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "why" -d 'Explain what is decided about a workload, and what was done'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "plan" -d 'Show what ctlmgr would do now'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "what-if" -d 'Show who would keep what after a change, if all felt as they do now, without making it'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "record" -d 'Write what deciding depends on to a file, one JSON object a line, for `replay`'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "replay" -d 'Decide again what a recording holds, and show what comes out differently'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "diff" -d 'Show every value that differs from before ctlmgr. Exit status 0 also if there are some'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "revert" -d 'Put back every value that ctlmgr wrote; with a daemon all jobs only observe until reboot'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "mode" -d 'Show or change what a job may do, until reboot'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "weight" -d 'Show or change the weight of a workload, until reboot'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "config" -d 'Check or show the configuration; needs no daemon'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "doctor" -d 'Examine this host: what stops ctlmgr from working, and what to do about it'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "memory" -d 'The memory job: watch it, or compute shares without a daemon'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "queue" -d 'Show which containers wait to start, for what and how long, and which start now'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "profile" -d 'Show what was learned of starts, or take it from one host to another'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "docker" -d 'Have dockerd ask ctlmgr before it starts a container, or not'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "batch" -d 'Batches of containers that start together: plan them, or start them so'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "topology" -d 'Show which processors share a last-level cache, a node and a socket; needs no daemon'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "coalesce" -d 'Two containers that talk much as one'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "bench" -d 'Measure this machine; needs no daemon'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "place" -d 'Workloads on L3 domains'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and not __fish_seen_subcommand_from status why plan what-if record replay diff revert mode weight config doctor memory queue profile docker batch topology coalesce bench place help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "check" -d 'Say everything that is wrong, with file, line and key. Exit status 2 if anything is'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "show" -d 'Show all settings in force, defaults included, as a file that would set them'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from memory" -f -a "top" -d 'Show who needs, keeps and misses what, again and again'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from memory" -f -a "plan" -d 'Divide a capacity among workloads by weight, and nothing else'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from queue" -f -a "watch" -d 'Show it again at every change'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from queue" -f -a "skip" -d 'Let a container start now'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from queue" -f -a "cancel" -d 'Refuse the start of a container that waits; its client is told'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from queue" -f -a "release" -d 'Let everybody start who waits now, and end `hold`'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from queue" -f -a "hold" -d 'Hold all starts, each for its longest wait at most'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from profile" -f -a "list" -d 'Show all of them'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from profile" -f -a "show" -d 'Show one with all figures'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from profile" -f -a "forget" -d 'Forget one; it is learned anew'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from profile" -f -a "export" -d 'Write all of them to a file'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from profile" -f -a "import" -d 'Read profiles from a file that `export` wrote; those of the same key are replaced'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from docker" -f -a "enable" -d 'Have dockerd ask before every start, by its authorization plugin'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from docker" -f -a "disable" -d 'Have dockerd do without ctlmgr, and put its configuration back'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from docker" -f -a "status" -d 'Show what dockerd\'s configuration says'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from batch" -f -a "plan" -d 'Divide containers into batches that do not fight, and nothing else'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from batch" -f -a "run" -d 'Start containers that exist batch by batch'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from batch" -f -a "sample" -d 'Run each image alone for a while, so that its character is known before it matters'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from batch" -f -a "penalties" -d 'Show what characters cost each other when they start together, learned and by guideline'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from coalesce" -f -a "advise" -d 'Say which pairs of containers talk most, whether each could be one container, and if not, why not'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from coalesce" -f -a "build" -d 'Build an image that runs both of two containers, the first one first, and say how to run it'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "l3" -d 'Measure what messages between processors cost, by which caches they share'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from place" -f -a "show" -d 'Show which containers run on which processors, and why; needs ctlmgrd'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from place" -f -a "graph" -d 'Show which containers talk to each other, and how much; needs ctlmgrd, and place.traffic'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from place" -f -a "suggest" -d 'Say on which L3 domain each container would be near those that it talks to, from the traffic and the CPU use of now. Changes nothing'
complete -c ctlmgr -n "__fish_ctlmgr_using_subcommand help; and __fish_seen_subcommand_from place" -f -a "plan" -d 'Assign workloads to L3 domains, so that those that talk to each other are near, and nothing else'
