package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"binnacle/deploy/internal/balancer"
)

// unresponsiveTimeout is how long an instance may not respond before its connections are closed:
// longer than delays on a busy machine, shorter than client timeouts.
const unresponsiveTimeout = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run, args := runBalancers, os.Args[1:]
	if len(args) > 0 && args[0] == "check" {
		run, args = runCheck, args[1:]
	}
	if err := run(ctx, args); err != nil && !errors.Is(err, context.Canceled) {
		if !errors.Is(err, errNotReady) { // already printed
			fmt.Fprintln(os.Stderr, "balancer:", err)
		}
		stop()
		os.Exit(1)
	}
}

// service is an address and its instances.
type service struct {
	listen    string
	instances []string
}

// parseService parses LISTEN=INSTANCE,INSTANCE.
func parseService(text string) (service, error) {
	listen, list, ok := strings.Cut(text, "=")
	parsed := service{listen: listen, instances: strings.Split(list, ",")}
	if !ok {
		return parsed, fmt.Errorf("--balance %q is not ADDRESS=INSTANCE,INSTANCE", text)
	}
	for _, address := range append([]string{listen}, parsed.instances...) {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return parsed, fmt.Errorf("--balance %q: %w", text, err)
		}
	}
	return parsed, nil
}

// runBalancers parses the command line and runs a balancer for each address until ctx ends.
func runBalancers(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("balancer", pflag.ContinueOnError)
	ca := flags.String("ca-file", "", "CA bundle that verifies the instances")
	texts := flags.StringArray("balance", nil,
		"ADDRESS=INSTANCE,INSTANCE: where to listen, and host:port of each instance; may be repeated")
	if err := flags.Parse(args); err != nil {
		return ignoreHelp(err)
	}
	readiness, err := newProber(*ca)
	if err != nil {
		return err
	}
	var balancers []*balancer.Balancer
	for _, text := range *texts {
		svc, err := parseService(text)
		if err != nil {
			return err
		}
		running, err := balancer.New(balancer.Config{
			Listen:              svc.listen,
			Backends:            svc.instances,
			UnresponsiveTimeout: unresponsiveTimeout,
			Ready:               readiness.stateOf,
		})
		if err != nil {
			return err
		}
		balancers = append(balancers, running)
		fmt.Printf("connections to %s go to those of %s that are ready\n", running.Addr(), strings.Join(svc.instances, ", "))
	}
	if len(balancers) == 0 {
		return errors.New("--balance is not given")
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, running := range balancers {
		group.Go(func() error { return running.Run(ctx) })
	}
	return group.Wait()
}

func ignoreHelp(err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	return err
}
