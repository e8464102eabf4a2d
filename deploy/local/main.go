// Command local runs the whole suite on this machine, for `make up`: it builds
// the binaries, makes certificates and kubeconfigs, starts every service,
// waits until all are ready, and stays until one dies or it is told to end; with --ha,
// for `make ha`, what dies is started again.
package main

import (
	"os"

	"binnacle/deploy/local/command"
)

func main() {
	p := command.Program{Name: "local", Short: "Run the whole suite on this machine, built from a checkout.", Dir: ".local"}
	os.Exit(p.Main(os.Args[1:], os.Stdout, os.Stderr))
}
