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
		apiserver.Command(), authnwebhook.Command(), authzwebhook.Command(), tokencleaner.Command(),
		bootstrapsigner.Command(), controllers.Command(), console.Command(),
	}
}

// commandForLink returns the command that a link with this name runs, or "" for other names. Tools
// that start an API server look for "kube-apiserver".
func commandForLink(file string) string {
	switch {
	case file == "kube-apiserver":
		return "apiserver"
	case file == "etcd", file == "nats-server", slices.ContainsFunc(suiteServices(),
		func(c options.Command) bool { return c.Name == file }):
		return file
	}
	return ""
}

// commandTree is the command line.
type commandTree struct {
	self string // path of this executable
	out  *os.File
	errs io.Writer
	code int // exit code of a command that parses its arguments itself
}

// newTree returns a command line that writes to out and errs.
func newTree(self string, out *os.File, errs io.Writer) *commandTree {
	return &commandTree{self: self, out: out, errs: errs}
}

// run runs a command and returns the exit code.
func (t *commandTree) run(args []string) int {
	root := t.newRootCommand()
	root.SetArgs(args)
	root.SetOut(t.out)
	root.SetErr(t.errs)
	if c, err := root.ExecuteC(); err != nil {
		fmt.Fprintf(t.errs, "%s: %v\n", c.CommandPath(), err)
		if _, failed := err.(*runError); failed {
			return options.ExitFailed
		}
		fmt.Fprintf(t.errs, "Run '%s --help' for usage.\n", c.CommandPath())
		return options.ExitUsage
	}
	return t.code
}

// newRootCommand returns the root command with all services, tools and servers.
func (t *commandTree) newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           name,
		Short:         "A Kubernetes 1.33 API server as a suite of services, in one binary.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.Suite(),
	}
	const services, suite, operations, servers = "services", "suite", "operations", "servers"
	root.AddGroup(
		&cobra.Group{ID: suite, Title: "The whole suite on this machine:"},
		&cobra.Group{ID: services, Title: "Services:"},
		&cobra.Group{ID: operations, Title: "Operations:"},
		&cobra.Group{ID: servers, Title: "Storage and messaging servers:"},
	)
	for _, program := range []command.Program{
		{Name: "up", Short: "Run one of each service, with etcd inside the API server.", Dir: ".binnacle"},
		{
			Name:       "ha",
			Short:      "Run three API servers, two of every other service, and clusters of etcd and NATS; restart processes that exit.",
			Dir:        ".binnacle-ha",
			Replicated: true,
		},
	} {
		root.AddCommand(t.newSupervisorCommand(program, suite))
	}
	for _, c := range suiteServices() {
		root.AddCommand(t.newServiceCommand(c, services))
	}
	for _, c := range []*cobra.Command{t.newServiceCommand(apiserver.Snapshot(), operations), t.newCertsCommand(),
		newKubeconfig(), newVersion()} {
		c.GroupID = operations
		root.AddCommand(c)
	}
	root.AddCommand(
		t.newMemberCommand("etcd", "Run an ordinary member of an etcd cluster.", servers, etcd.Run, etcd.Flags()),
		t.newMemberCommand("nats-server", "Run an ordinary NATS server.", servers, nats.Run, nil),
	)
	return root
}

// newCertsCommand returns the command that manages certificates. It parses its arguments
// itself, so that its exit codes are the same as those of the separate program.
func (t *commandTree) newCertsCommand() *cobra.Command {
	root := certscommand.New(name + " certs")
	return newRawCommand("certs", root.Short, "", func(args []string) { t.code = certscommand.Run(root, args, t.out, t.errs) },
		func(_ []string, last string) []string { return flagNames(root.Flags(), last) })
}

// newRawCommand returns a command that parses its arguments itself. suggest returns completions for
// the last word after the other words; without any, the shell completes file names.
func newRawCommand(use, short, group string, run func(args []string),
	suggest func(words []string, last string) []string) *cobra.Command {
	return &cobra.Command{
		Use:                use,
		Short:              short,
		GroupID:            group,
		DisableFlagParsing: true,
		Run:                func(_ *cobra.Command, args []string) { run(args) },
		ValidArgsFunction: func(_ *cobra.Command, words []string, last string) ([]string, cobra.ShellCompDirective) {
			if found := suggest(words, last); len(found) > 0 {
				return found, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
}

// newSupervisorCommand returns the command that runs the whole suite.
func (t *commandTree) newSupervisorCommand(program command.Program, group string) *cobra.Command {
	use := program.Name
	program.Name = name + " " + use
	program.Self = t.self
	return newRawCommand(use, program.Short, group,
		func(args []string) { t.code = program.Main(args, t.out, t.errs) },
		func(_ []string, last string) []string { return flagNames(program.NewFlags(), last) })
}

// newServiceCommand returns the command of a service, which exits the process itself.
func (t *commandTree) newServiceCommand(c options.Command, group string) *cobra.Command {
	use := c.Name
	c.Name = name + " " + use
	return newRawCommand(use, c.Short, group, func(args []string) { options.Run(c, args) }, c.Suggest)
}

// newMemberCommand returns the command of a third-party server: etcd or NATS.
func (t *commandTree) newMemberCommand(use, short, group string, run func(context.Context, []string, io.Writer) error,
	known *flag.FlagSet) *cobra.Command {
	return newRawCommand(use, short, group, func(args []string) {
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
func flagNames(flags *pflag.FlagSet, last string) (out []string) {
	if !strings.HasPrefix(last, "-") || strings.Contains(last, "=") {
		return nil
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if word := "--" + f.Name; strings.HasPrefix(word, last) {
			_, usage := pflag.UnquoteUsage(f)
			out = append(out, word+"\t"+usage)
		}
	})
	return out
}
