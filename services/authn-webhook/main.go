// Command authn-webhook is the process around package app.
package main

import (
	"os"

	"binnacle/libs/options"
	"binnacle/services/authn-webhook/program"
)

func main() { options.Run(program.Command(), os.Args[1:]) }
