// Command certs makes the certificates and keys of a suite in a folder, and
// prints the paths of those that it made. It renews them, and rotates the CAs in
// steps.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"binnacle/deploy/certs"
)

func main() {
	var o certs.Options
	var step, secrets string
	var which []string
	pflag.StringVar(&o.Dir, "dir", "certs", "folder of the files")
	pflag.StringSliceVar(&o.Names, "name", nil, "further DNS name of the API server; may be repeated")
	pflag.IPSliceVar(&o.Addresses, "address", nil, "further address of the API server; may be repeated")
	pflag.BoolVar(&o.Renew, "renew", false, "make all certificates anew, except those of the CAs")
	pflag.StringVar(&step, "rotate-ca", "", fmt.Sprintf("take a step in the rotation of the CAs: %v, in this order; restart the services after each", certs.Steps()))
	pflag.StringSliceVar(&which, "ca", nil, fmt.Sprintf("CA that --rotate-ca rotates, of %v; may be repeated, and without it all are rotated", certs.CAs()))
	pflag.StringVar(&secrets, "secrets", "", "write the files as Secrets for deploy/manifests to this YAML file")
	pflag.Parse()
	made, err := certs.Ensure(o)
	if err == nil && step != "" {
		var more []string
		more, err = certs.Rotate(o, certs.Step(step), authorities(which)...)
		made = append(made, more...)
	}
	if err == nil && secrets != "" {
		err = writeSecrets(o, secrets)
	}
	for _, path := range made {
		fmt.Println(path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "certs:", err)
		os.Exit(1)
	}
}

func authorities(names []string) (out []certs.CA) {
	for _, n := range names {
		out = append(out, certs.CA(n))
	}
	return out
}

func writeSecrets(o certs.Options, path string) error {
	text, err := certs.Secrets(o)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
