# fish completion for sluice. What there is to offer, `sluice __complete` says.

function __sluice_complete
    set -l words (commandline -opc)
    set -l program $words[1]
    set -l current (commandline -ct)
    for line in ($program __complete $words[2..-1] $current 2>/dev/null)
        switch $line
            case ':command *'
                __fish_complete_subcommand --commandline $words[(math (string replace ':command ' '' -- $line) + 2)..-1] $current
            case ':files*'
                __fish_complete_path $current
            case '*'
                echo $line
        end
    end
end

complete -c sluice -f -a '(__sluice_complete)'
