// Command binnacle is the whole suite in one binary: each service by its name, and the
// supervisor that runs them all on this machine. A link to it that is named after one
// of its services is that service.
package main

import (
	"os"
	"path/filepath"
)

func main() {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	args := os.Args[1:]
	if name := calledAs(filepath.Base(os.Args[0])); name != "" {
		args = append([]string{name}, args...)
	}
	os.Exit(newTree(self, os.Stdout, os.Stderr).run(args))
}
