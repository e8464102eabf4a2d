// Command controllers runs the service of package app.
package main

import (
	"os"

	"binnacle/libs/options"
	"binnacle/services/controllers/program"
)

func main() { options.Run(program.Command(), os.Args[1:]) }
