// Package command is the command line of the supervisor that runs a whole suite on this machine,
// for the binary that contains all services.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"binnacle/deploy/local/internal/suite"
	"binnacle/libs/idlememory"
	"binnacle/libs/version"
)

// Program describes a supervisor.
type Program struct {
	Name, Short string
	// Self is an executable that runs each service, etcd and nats-server, selected by its first
	// argument.
	Self string
	// Replicated runs several instances of everything.
	Replicated bool
	// Dir is the default folder of data, certificates and kubeconfigs.
	Dir string
}

// NewFlags returns the flags of the program, for documentation.
func (p Program) NewFlags() *pflag.FlagSet { return p.flags(&suite.Config{}) }

// flags returns the flags of the program, which set config.
func (p Program) flags(config *suite.Config) *pflag.FlagSet {
	f := pflag.NewFlagSet(p.Name, pflag.ContinueOnError)
	f.StringVar(&config.Dir, "dir", p.Dir, "Folder of data, certificates and kubeconfigs.")
	f.IntVar(&config.Port, "port", 6443, "Port of the API server; the other services take the ports after it.")
	f.DurationVar(&config.Timeout, "timeout", 2*time.Minute, "How long the services may take to be ready.")
	f.BoolVar(&config.NoControllers, "no-controllers", false,
		"Do not start the controllers service, for example if kube-controller-manager runs.")
	config.HA = p.Replicated
	config.Self = p.Self
	return f
}

// Main parses args, which omit the program's name, and runs the suite until SIGINT or SIGTERM. It
// returns the exit code: 0 for a clean end, 1 for a failure, 2 for an invalid command line.
func (p Program) Main(args []string, out *os.File, errs io.Writer) int {
	config := suite.Config{Out: out, Color: suite.IsTerminal(out)}
	flags := p.flags(&config)
	printVersion := flags.Bool("version", false, "Print the version and exit.")
	flags.SetOutput(errs)
	flags.Usage = func() { fmt.Fprintf(out, "%s\n\nUsage:\n  %s [flags]\n\n%s", p.Short, p.Name, flags.FlagUsages()) }
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(errs, "%s: %v\nRun '%s --help' for usage.\n", p.Name, err, p.Name)
		return 2
	}
	if *printVersion {
		fmt.Fprintln(out, p.Name, "version", version.Suite())
		return 0
	}
	if err := run(config); err != nil {
		fmt.Fprintf(errs, "%s: %v\n", p.Name, err)
		return 1
	}
	return 0
}

// run starts a suite and handles signals until it ends.
func run(config suite.Config) error {
	var err error
	if config.Dir, err = filepath.Abs(config.Dir); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	signals := make(chan os.Signal, 2)
	hangups := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if config.HA {
		signal.Notify(hangups, syscall.SIGHUP)
		defer signal.Stop(hangups)
	} else if !signal.Ignored(syscall.SIGHUP) {
		// The terminal is gone, and nothing else would end the services.
		signal.Notify(signals, syscall.SIGHUP)
	}
	// A second signal kills services that are still stopping.
	killNow, kill := context.WithCancel(context.Background())
	defer kill()
	go func() {
		for _, cancel := range []func(){stop, kill} {
			select {
			case <-signals:
				cancel()
			case <-killNow.Done():
				return
			}
		}
	}()
	restart := make(chan struct{})
	config.Restart = restart
	go forwardHangups(ctx, hangups, restart)
	go func() { _ = idlememory.Release(ctx) }()
	return suite.Up(ctx, killNow, config)
}

// forwardHangups requests a rolling restart after each SIGHUP until ctx ends.
func forwardHangups(ctx context.Context, hangups <-chan os.Signal, restart chan<- struct{}) {
	for {
		select {
		case <-hangups:
		case <-ctx.Done():
			return
		}
		select {
		case restart <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}
