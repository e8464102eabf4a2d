// Command apidiff prints what the API server lacks of another minor version of Kubernetes: kinds,
// fields, defaults, constants and feature gates, and which of its kinds that version removes or
// deprecates. It reads the source of published modules and imports none of them.
//
//	go -C tools run ./apidiff -root .. -version 1.34
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
)

func main() {
	root := flag.String("root", ".", "folder of the main module")
	version := flag.String("version", "", "minor version of Kubernetes, such as 1.34")
	flag.Parse()
	if err := run(*root, *version); err != nil {
		fmt.Fprintln(os.Stderr, "apidiff:", err)
		os.Exit(1)
	}
}

func run(root, version string) error {
	number, ok := strings.CutPrefix(version, "1.")
	minor, err := strconv.Atoi(number)
	if !ok || err != nil {
		return fmt.Errorf("-version=%q: expected a minor version such as 1.34", version)
	}
	ours, err := local(root)
	if err != nil {
		return err
	}
	theirs, err := published(minor)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	report(&out, ours, theirs)
	_, err = out.WriteTo(os.Stdout)
	return err
}
