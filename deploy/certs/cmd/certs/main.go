// Command certs creates, checks, renews and rotates the certificates of a suite.
package main

import (
	"os"

	"binnacle/deploy/certs/command"
)

func main() { os.Exit(command.Run(command.New("certs"), os.Args[1:], os.Stdout, os.Stderr)) }
