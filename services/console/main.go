// Command console runs the service of package program.
package main

import (
	"os"

	"binnacle/libs/options"
	"binnacle/services/console/program"
)

func main() { options.Run(program.Command(), os.Args[1:]) }
