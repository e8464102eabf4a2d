// Command apiserver is the process around package program.
package main

import (
	"os"

	"binnacle/libs/options"
	"binnacle/services/apiserver/program"
)

func main() { options.Run(program.Command(), os.Args[1:]) }
