// Command h2spec is the conformance suite of HTTP/2 and HPACK of github.com/summerwind/h2spec,
// built from the version of this module, so that the tests need no installation.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/summerwind/h2spec"
	"github.com/summerwind/h2spec/config"
)

func main() {
	c := config.Config{TLS: true, Insecure: true}
	flag.StringVar(&c.Host, "host", "127.0.0.1", "host of the server")
	flag.IntVar(&c.Port, "port", 6443, "port of the server")
	flag.StringVar(&c.Path, "path", "/", "path of the requests, whose response must have a body")
	flag.DurationVar(&c.Timeout, "timeout", 2*time.Second, "timeout of a response")
	flag.StringVar(&c.CertFile, "cert", "", "file of the client certificate")
	flag.StringVar(&c.CertKeyFile, "key", "", "file of its key")
	flag.IntVar(&c.MaxHeaderLen, "max-header-length", 4000, "maximum length of a header that the server accepts")
	flag.BoolVar(&c.Strict, "strict", false, "also check recommendations")
	flag.Parse()
	c.Sections = flag.Args()
	passed, err := h2spec.Run(&c)
	if err != nil {
		fmt.Fprintln(os.Stderr, "h2spec:", err)
	}
	if err != nil || !passed {
		os.Exit(1)
	}
}
