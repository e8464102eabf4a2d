// Package options turns a command line into a running process, in the same way for every service:
// parse, complete, validate, run.
//
// A service declares its flags in named sections, which --help prints. Values come from the command
// line, then from the YAML file of --config, whose keys are flag names, then from the defaults. An
// unknown flag or key is an error. For a key the error contains file and line.
//
// A binary may have further commands, each a Command with its own flags, which the first argument
// selects.
//
// The first SIGTERM or SIGINT ends the context of the run function. A second one ends the process
// at once. Exit codes: 0 for a clean end, --help and --version, 1 for a failed run, 2 for an
// invalid command line or configuration.
package options
