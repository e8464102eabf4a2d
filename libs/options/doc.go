// Package options turns a command line into a running process, the same way
// for every service: parse, complete, validate, run.
//
// A service declares its flags in named sections, which is how --help shows
// them. Values come from the command line first, then from the YAML file named
// by --config, whose keys are flag names, then from the flags' defaults. An
// unknown flag or key is an error; for a key it names file and line.
//
// A binary may do other things beside its service, each a Command with flags of its
// own, which the first argument names.
//
// The first SIGTERM or SIGINT ends the context of the run function, a second
// one ends the process at once. Exit codes: 0 for a clean end, --help and
// --version, 1 for a failed run, 2 for a wrong command line or configuration.
package options
