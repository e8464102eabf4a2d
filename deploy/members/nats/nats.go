// Package nats runs an ordinary NATS server, with NATS' own flags, for suites that contain
// everything in one binary.
package nats

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/nats-io/nats-server/v2/logger"
	"github.com/nats-io/nats-server/v2/server"
)

// Values of --log-level, which NATS' own program does not have.
const (
	levelInfo = "info"
	levelWarn = "warn"
)

// Run runs a server until ctx ends. SIGHUP reloads its configuration and certificates. It writes
// help, the version and the result of a configuration check to out. For help and version it returns
// flag.ErrHelp.
func Run(ctx context.Context, args []string, out io.Writer) error {
	// 1. Parse the flags.
	flags := flag.NewFlagSet("nats-server", flag.ContinueOnError)
	flags.SetOutput(out)
	requested := false // help or version was requested, which is not an error
	level := flags.String("log-level", levelInfo, "'info', or 'warn' to log warnings and errors only")
	help := func() {
		requested = true
		flags.PrintDefaults()
	}
	opts, err := server.ConfigureOptions(flags, args, func() {
		requested = true
		fmt.Fprintln(out, "nats-server", server.VERSION)
	}, help, help)
	if err != nil {
		return err
	}
	if requested {
		return flag.ErrHelp
	}
	if *level != levelInfo && *level != levelWarn {
		return fmt.Errorf("--log-level: got %q, want %q or %q", *level, levelInfo, levelWarn)
	}
	if opts.CheckConfig {
		_, err := fmt.Fprintf(out, "configuration file %s is valid (%s)\n", opts.ConfigFile, opts.ConfigDigest())
		return err
	}

	// 2. Start the server.
	opts.NoSigs = true // ctx ends the server
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	if *level == levelWarn {
		s.SetLoggerV2(warningLogger{logger.NewStdLogger(true, false, false, false, true)}, false, false, false)
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	s.Start()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.WaitForShutdown()
	}()

	// 3. Reload on SIGHUP, until ctx or the server ends.
	for {
		select {
		case <-hangups:
			if err := s.Reload(); err != nil {
				s.Errorf("Failed to reload the configuration: %v", err)
			}
		case <-ctx.Done():
			s.Shutdown()
			<-ended
			return nil
		case <-ended:
			return errors.New("the server has stopped")
		}
	}
}

// warningLogger is a logger that omits informational messages.
type warningLogger struct{ server.Logger }

// Noticef implements server.Logger.
func (warningLogger) Noticef(string, ...any) {}

// Errorf implements server.Logger. It omits the first failure to reach another member, which often
// starts at the same time.
func (q warningLogger) Errorf(format string, args ...any) {
	if strings.HasPrefix(format, "Error trying to connect to route") && len(args) > 0 && args[0] == 1 {
		return
	}
	q.Logger.Errorf(format, args...)
}
