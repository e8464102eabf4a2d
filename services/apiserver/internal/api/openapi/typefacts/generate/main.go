// Command generate writes facts.txt of package typefacts from the source of the API's types. `go
// generate` in that package runs it.
package main

import (
	"fmt"
	"os"
)

func main() {
	data, err := collectFacts()
	if err == nil {
		err = os.WriteFile("facts.txt", data, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}
