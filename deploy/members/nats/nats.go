// Package nats runs an ordinary NATS server, with NATS' own flags, for suites that contain
// everything in one binary.
package nats

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/nats-io/nats-server/v2/server"
)

// Run runs a server until ctx ends. It writes help, the version and the result of a configuration
// check to out. For help and version it returns flag.ErrHelp.
func Run(ctx context.Context, args []string, out io.Writer) error {
	set := flag.NewFlagSet("nats-server", flag.ContinueOnError)
	set.SetOutput(out)
	asked := false // help or version was requested, which is no error
	help := func() {
		asked = true
		set.PrintDefaults()
	}
	opts, err := server.ConfigureOptions(set, args, func() {
		asked = true
		fmt.Fprintln(out, "nats-server", server.VERSION)
	}, help, help)
	if err != nil {
		return err
	}
	if asked {
		return flag.ErrHelp
	}
	if opts.CheckConfig {
		_, err := fmt.Fprintf(out, "configuration file %s is valid (%s)\n", opts.ConfigFile, opts.ConfigDigest())
		return err
	}
	opts.NoSigs = true // ctx ends the server
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.WaitForShutdown()
	}()
	select {
	case <-ctx.Done():
		s.Shutdown()
		<-ended
		return nil
	case <-ended:
		return errors.New("the server has stopped")
	}
}
