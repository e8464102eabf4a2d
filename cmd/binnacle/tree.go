package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	certscommand "binnacle/deploy/certs/command"
	"binnacle/deploy/local/command"
	"binnacle/deploy/members/etcd"
	"binnacle/deploy/members/nats"
	"binnacle/libs/options"
	"binnacle/libs/version"
	apiserver "binnacle/services/apiserver/program"
	authnwebhook "binnacle/services/authn-webhook/program"
	authzwebhook "binnacle/services/authz-webhook/program"
	bootstrapsigner "binnacle/services/bootstrapsigner/program"
	console "binnacle/services/console/program"
	controllers "binnacle/services/controllers/program"
	tokencleaner "binnacle/services/tokencleaner/program"
)

const name = "binnacle"

// suiteServices returns the services in the order of help.
func suiteServices() []options.Command {
	return []options.Command{
		apiserver.Command(), authnwebhook.Command(), authzwebhook.Command(), tokencleaner.Command(), bootstrapsigner.Command(), controllers.Command(), console.Command(),
	}
}

// calledAs is the command that a link's name stands for: "kube-apiserver" is what
// tools look for that start an API server. It is empty for other names.
func calledAs(file string) string {
	switch {
	case file == "kube-apiserver":
		return "apiserver"
	case file == "etcd", file == "nats-server", slices.ContainsFunc(suiteServices(), func(c options.Command) bool { return c.Name == file }):
		return file
	}
	return ""
}

// tree is the command line.
type tree struct {
	self string // this executable
	out  *os.File
	errs io.Writer
	code int
}

func newTree(self string, out *os.File, errs io.Writer) *tree {
	return &tree{self: self, out: out, errs: errs}
}

// run runs a command and returns the exit code.
func (t *tree) run(args []string) int {
	root := t.root()
	root.SetArgs(args)
	root.SetOut(t.out)
	root.SetErr(t.errs)
	if c, err := root.ExecuteC(); err != nil {
		fmt.Fprintf(t.errs, "%s: %v\n", c.CommandPath(), err)
		if _, failed := err.(*failure); failed {
			return options.ExitFailed
		}
		fmt.Fprintf(t.errs, "Run '%s --help' for usage.\n", c.CommandPath())
		return options.ExitUsage
	}
	return t.code
}

// root returns the root command with all services, tools and servers.
func (t *tree) root() *cobra.Command {
	root := &cobra.Command{
		Use: name, Short: "A Kubernetes 1.33 API server as a suite of services, in one binary.",
		SilenceUsage: true, SilenceErrors: true, Version: version.Suite(),
	}
	const services, suite, operations, servers = "services", "suite", "operations", "servers"
	root.AddGroup(&cobra.Group{ID: suite, Title: "The whole suite on this machine:"}, &cobra.Group{ID: services, Title: "Services:"},
		&cobra.Group{ID: operations, Title: "Operations:"}, &cobra.Group{ID: servers, Title: "Storage and messaging servers:"})
	for _, p := range []command.Program{
		{Name: "up", Short: "Run one of each service, with etcd and NATS inside the API server.", Dir: ".binnacle"},
		{Name: "ha", Short: "Run three API servers, two of every other service, and clusters of etcd and NATS; restart processes that exit.", Dir: ".binnacle-ha", Replicated: true},
	} {
		root.AddCommand(t.supervisor(p, suite))
	}
	for _, c := range suiteServices() {
		root.AddCommand(t.service(c, services))
	}
	for _, c := range []*cobra.Command{t.service(apiserver.Snapshot(), operations), t.certificates(), newKubeconfig(), newVersion()} {
		c.GroupID = operations
		root.AddCommand(c)
	}
	root.AddCommand(
		t.member("etcd", "Run an ordinary member of an etcd cluster.", servers, etcd.Run, etcd.Flags()),
		t.member("nats-server", "Run an ordinary NATS server.", servers, nats.Run, nil),
	)
	return root
}

// certificates returns the command that manages certificates. It parses its arguments
// itself, so that its exit codes are the same as those of the separate program.
func (t *tree) certificates() *cobra.Command {
	root := certscommand.New(name + " certs")
	return rawCommand("certs", root.Short, "", func(args []string) { t.code = certscommand.Run(root, args, t.out, t.errs) },
		func(_ []string, last string) []string { return flagNames(root.Flags(), last) })
}

// rawCommand is a command that reads its arguments itself.
func rawCommand(use, short, group string, run func(args []string), suggest func(words []string, last string) []string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, GroupID: group, DisableFlagParsing: true,
		Run: func(_ *cobra.Command, args []string) { run(args) },
		ValidArgsFunction: func(_ *cobra.Command, words []string, last string) ([]string, cobra.ShellCompDirective) {
			if found := suggest(words, last); len(found) > 0 {
				return found, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
}

func (t *tree) supervisor(p command.Program, group string) *cobra.Command {
	use := p.Name
	p.Name = name + " " + use
	p.Self = t.self
	return rawCommand(use, p.Short, group,
		func(args []string) { t.code = p.Main(args, t.out, t.errs) },
		func(_ []string, last string) []string { return flagNames(p.NewFlags(), last) })
}

func (t *tree) service(c options.Command, group string) *cobra.Command {
	use := c.Name
	c.Name = name + " " + use
	return rawCommand(use, c.Short, group, func(args []string) { options.Run(c, args) }, c.Suggest)
}

// member is a server that the suite runs and did not write.
func (t *tree) member(use, short, group string, run func(context.Context, []string, io.Writer) error, known *flag.FlagSet) *cobra.Command {
	return rawCommand(use, short, group, func(args []string) {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := run(ctx, args, t.out); err != nil && !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(t.errs, "%s %s: %v\n", name, use, err)
			t.code = options.ExitFailed
		}
	}, func(_ []string, last string) []string {
		set := pflag.NewFlagSet(use, pflag.ContinueOnError)
		if known != nil {
			set.AddGoFlagSet(known)
		}
		return flagNames(set, last)
	})
}

// flagNames returns the names of the flags in a set that start with last, for completion.
func flagNames(set *pflag.FlagSet, last string) (out []string) {
	if !strings.HasPrefix(last, "-") || strings.Contains(last, "=") {
		return nil
	}
	set.VisitAll(func(f *pflag.Flag) {
		if word := "--" + f.Name; strings.HasPrefix(word, last) {
			_, usage := pflag.UnquoteUsage(f)
			out = append(out, word+"\t"+usage)
		}
	})
	return out
}
