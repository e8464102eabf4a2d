package main

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
)

// config holds the command line.
type config struct {
	State, Project, File string
	Images, Tag          string
	Port                 int
	Console              bool
	ConsolePort          int
	NoBuild, NoPull      bool
	Only                 []string
	Timeout              time.Duration
	out                  io.Writer
	etcdctl              bool // the image of etcd has etcdctl
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "compose:", err)
		stop()
		os.Exit(1)
	}
}

// run parses the command line and starts or stops the containers.
func run(ctx context.Context, args []string) error {
	c := config{out: os.Stdout}
	flags := pflag.NewFlagSet("compose up|down", pflag.ContinueOnError)
	flags.StringVar(&c.State, "state", ".local-compose", "folder of certificates, kubeconfig and etcd's data")
	flags.StringVar(&c.Project, "project", "binnacle", "prefix of the names of containers and networks")
	flags.StringVar(&c.File, "file", "deploy/compose/compose.yaml", "the compose file")
	flags.StringVar(&c.Images, "images", "localhost/binnacle", "what the names of images begin with")
	flags.StringVar(&c.Tag, "tag", "latest", "tag of the images")
	flags.IntVar(&c.Port, "port", 6443, "port of the API on this machine")
	flags.BoolVar(&c.Console, "console", false, "run the console too")
	flags.IntVar(&c.ConsolePort, "console-port", 6448, "port of the console on this machine")
	flags.BoolVar(&c.NoBuild, "no-build", false, "use the existing images")
	flags.BoolVar(&c.NoPull, "no-pull", false, "build the images of etcd and NATS without a registry")
	flags.StringSliceVar(&c.Only, "only", nil, "containers to start or recreate; all if empty")
	flags.DurationVar(&c.Timeout, "timeout", 3*time.Minute, "how long the containers may take to be ready")
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if c.State, err = filepath.Abs(c.State); err != nil {
		return err
	}
	switch {
	case flags.NArg() == 1 && flags.Arg(0) == "up":
		return c.up(ctx)
	case flags.NArg() == 1 && flags.Arg(0) == "down":
		return c.down(ctx)
	}
	return fmt.Errorf("expected \"up\" or \"down\", got %q", flags.Args())
}

// up creates the certificates, starts the containers and waits until they are ready.
func (c *config) up(ctx context.Context) error {
	compose, err := findCompose(ctx)
	if err != nil {
		return err
	}
	if err := c.createFolders(); err != nil {
		return err
	}
	env, err := c.findImages(ctx)
	if err != nil {
		return err
	}
	if err := c.ensureCertificates(); err != nil {
		return err
	}
	kubeconfig, err := c.writeKubeconfig()
	if err != nil {
		return err
	}
	args := []string{"up", "--detach"}
	if len(c.Only) > 0 {
		args = append(append(args, "--no-deps"), c.Only...)
	}
	c.printf("start the containers")
	if err := c.runCompose(ctx, compose, env, args...); err != nil {
		return err
	}
	if err := c.waitUntilReady(ctx); err != nil {
		return err
	}
	c.printf("all containers are ready")
	if c.Console {
		fmt.Fprintf(c.out, "\n    console: https://127.0.0.1:%d (requires permission to get /metrics of the API server)\n", c.ConsolePort)
	}
	fmt.Fprintf(c.out, "\n    export KUBECONFIG=%s\n    kubectl get namespaces\n\nNo kubectl at hand? `make kubectl` builds one as bin/kubectl. `make compose-down` removes the containers and keeps the data.\n\n", kubeconfig)
	return nil
}

func (c *config) down(ctx context.Context) error {
	compose, err := findCompose(ctx)
	if err != nil {
		return err
	}
	c.Console = true // it may be running
	return c.runCompose(ctx, compose, nil, "down", "--remove-orphans")
}

func (c *config) printf(format string, args ...any) {
	fmt.Fprintf(c.out, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}
