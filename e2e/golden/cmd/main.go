// Command cmd replays recorded cases against a running server. A case is a recorded conversation of
// several steps, and a step is a request with its response:
//
//	go run ./golden/cmd -server https://127.0.0.1:6443 -cert admin.crt -key admin.key [CASE.yaml|DIR ...]
//
// It prints each step whose response differs, and a tally per area. It exits with code 1 if any
// step differs in more than the wording of messages. With -record it writes the server's responses
// as the wanted ones. Record only against kube-apiserver. Record twice, each time with a new,
// empty server, and keep a case only if both recordings are equal.
package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"

	"binnacle/e2e/golden"
)

// flags holds the command line.
type flags struct {
	server, cert, key, skip, run string
	record, verbose, wording     bool
}

var errDiffers = errors.New("responses differ")

func main() {
	var parsed flags
	flag.StringVar(&parsed.server, "server", "https://127.0.0.1:6443", "URL of the API server")
	flag.StringVar(&parsed.cert, "cert", "", "client certificate of a system:masters user")
	flag.StringVar(&parsed.key, "key", "", "file of its key")
	flag.BoolVar(&parsed.record, "record", false, "write the server's responses as the wanted responses")
	flag.BoolVar(&parsed.verbose, "v", false, "print every differing step in full")
	flag.StringVar(&parsed.skip, "skip", "", "field name to ignore in comparisons, such as managedFields")
	flag.BoolVar(&parsed.wording, "wording", false, "print differences in the wording of messages too")
	flag.StringVar(&parsed.run, "run", "", "regular expression that selects cases by file name")
	flag.Parse()
	paths := flag.Args()
	if len(paths) == 0 {
		paths = []string{"golden/cases"}
	}
	err := play(parsed, paths)
	switch {
	case errors.Is(err, errDiffers):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "golden:", err)
		os.Exit(2)
	}
}

// play runs the selected cases and prints their differences.
func play(options flags, paths []string) error {
	match, err := regexp.Compile(options.run)
	if err != nil {
		return err
	}
	cert, err := tls.LoadX509KeyPair(options.cert, options.key)
	if err != nil {
		return err
	}
	cases, err := golden.Load(paths, match, options.record)
	if err != nil {
		return err
	}
	runner := golden.NewRunner(options.server, cert)
	runner.Skip = options.skip
	tally := golden.Tally{}
	for _, c := range cases {
		results, err := runner.Run(c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.File, err)
		}
		if options.record {
			if err := record(c, results); err != nil {
				return err
			}
			continue
		}
		tally.Add(results)
		for _, r := range results {
			if !r.Equivalent || options.wording && len(r.Differences) > 0 {
				fmt.Print(r.Describe(options.verbose))
			}
		}
	}
	if options.record {
		fmt.Printf("recorded %d cases\n", len(cases))
		return nil
	}
	if err := tally.Write(os.Stdout); err != nil {
		return err
	}
	if all := tally.Total(); all.Equivalent != all.Steps {
		return errDiffers
	}
	return nil
}

// record writes the responses of a run as the wanted responses of a case.
func record(testCase *golden.Case, results []golden.Result) error {
	testCase.Want = nil
	for _, result := range results {
		// Load has dropped the wanted responses, so a difference is a request that failed.
		if len(result.Differences) > 0 {
			return fmt.Errorf("%s step %d: %s", testCase.File, result.Step, result.Differences[0])
		}
		testCase.Want = append(testCase.Want, result.Got)
	}
	return testCase.Save()
}
