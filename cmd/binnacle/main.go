// Command binnacle is the whole suite in one binary. Its subcommands are the services, and the
// supervisor that runs them all on this machine. If it is called through a link with the name of a
// service, it runs that service.
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
	if name := commandForLink(filepath.Base(os.Args[0])); name != "" {
		args = append([]string{name}, args...)
	}
	os.Exit(newTree(self, os.Stdout, os.Stderr).run(args))
}
