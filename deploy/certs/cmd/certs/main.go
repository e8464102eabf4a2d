// Command certs makes the certificates and keys of a suite in a folder, and
// prints the paths of those that it made.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"binnacle/deploy/certs"
)

func main() {
	var o certs.Options
	pflag.StringVar(&o.Dir, "dir", "certs", "folder of the files")
	pflag.StringSliceVar(&o.Names, "name", nil, "further DNS name of the API server; may be repeated")
	pflag.IPSliceVar(&o.Addresses, "address", nil, "further address of the API server; may be repeated")
	pflag.Parse()
	made, err := certs.Ensure(o)
	for _, path := range made {
		fmt.Println(path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "certs:", err)
		os.Exit(1)
	}
}
