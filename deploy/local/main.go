// Command local runs the whole suite on this machine, for `make up`: it builds
// the binaries, makes certificates and kubeconfigs, starts every service,
// waits until all are ready, and stays until one dies or it is told to end; with --ha,
// for `make ha`, what dies is started again.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"binnacle/deploy/local/internal/suite"
)

func main() {
	c := suite.Config{Out: os.Stdout, Colour: suite.IsTerminal(os.Stdout)}
	pflag.StringVar(&c.Dir, "dir", ".local", "folder of data, certificates and kubeconfigs")
	pflag.StringVar(&c.BinDir, "bin-dir", "bin", "folder of the binaries")
	pflag.IntVar(&c.Port, "port", 6443, "port of the API server; the other services take the ports after it")
	pflag.BoolVar(&c.NoBuild, "no-build", false, "run the binaries as they are in --bin-dir")
	pflag.BoolVar(&c.HA, "ha", false, "run three API servers, two of every other service, and clusters of three etcd and three NATS servers; what dies is started again, and SIGHUP restarts them one at a time")
	pflag.DurationVar(&c.Timeout, "timeout", 2*time.Minute, "how long the services may take to be ready")
	pflag.Parse()

	if err := run(c); err != nil {
		fmt.Fprintln(os.Stderr, "local:", err)
		os.Exit(1)
	}
}

func run(c suite.Config) error {
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return err
	}
	if c.BinDir, err = filepath.Abs(c.BinDir); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// A second signal ends the patience with services that take their time.
	hurry, kill := context.WithCancel(context.Background())
	defer kill()
	go func() {
		<-signals
		stop()
		<-signals
		kill()
	}()
	restart := make(chan struct{})
	c.Restart = restart
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for range hangups {
			select {
			case restart <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return suite.Up(ctx, hurry, c)
}
