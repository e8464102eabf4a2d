// Command local runs the whole suite on this machine, for `make up`: it builds the binaries,
// creates certificates and kubeconfigs, starts every service, waits until all are ready, and runs
// until a service exits or it receives a signal. With --ha, for `make ha`, it restarts services
// that exit.
package main

import (
	"os"

	"binnacle/deploy/local/command"
)

func main() {
	p := command.Program{Name: "local", Short: "Run the whole suite on this machine, built from a checkout.", Dir: ".local"}
	os.Exit(p.Main(os.Args[1:], os.Stdout, os.Stderr))
}
