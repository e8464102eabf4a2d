package options

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

const (
	configFlag  = "config"
	helpColumns = 110 // width of the help text
)

// Exit codes of Main.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// Options is a service's configuration.
type Options interface {
	// AddFlags declares the flags, with their defaults.
	AddFlags(*Sections)
	// Complete derives values from other ones. It is called once, after parsing.
	Complete() error
	// Validate returns all errors, not only the first one.
	Validate() []error
}

// RunFunc runs a service until ctx ends, then shuts down gracefully.
type RunFunc func(ctx context.Context, log *slog.Logger) error

// Command is a service or a subcommand of one.
type Command struct {
	Name, Short string
	Options     Options
	Run         RunFunc
	// Commands are the subcommands.
	Commands []Command
}

// commonFlags holds the flags of every command.
type commonFlags struct {
	logs    logOptions
	version versionFlag
	config  string
}

func (c *commonFlags) addFlags(s *Sections) {
	c.logs.addFlags(s)
	global := s.Set("global")
	global.BoolP("help", "h", false, "print this help and exit")
	global.Var(&c.version, "version", "Print the version and exit; --version=raw prints full build information.")
	global.Lookup("version").NoOptDefVal = "true"
	global.StringVar(&c.config, configFlag, "",
		"YAML file with flag values; its keys are flag names, and the command line takes precedence.")
}

// Run is the complete main function of a service, with the arguments after its name. It does not
// return.
func Run(command Command, args []string) {
	// The first signal begins a graceful shutdown, the second one ends the process.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-signals
		cancel()
		<-signals
		fmt.Fprintln(os.Stderr, command.Name+": second signal, exiting at once")
		os.Exit(ExitFailed)
	}()
	code := Main(ctx, command.Name, command.Short, command.Options, func(ctx context.Context, log *slog.Logger) error {
		// client-go logs through klog, which is global to the process.
		klog.SetSlogLogger(slog.New(libraryHandler{log.Handler()}))
		return command.Run(ctx, log)
	}, args, os.Stdout, os.Stderr, command.Commands...)
	os.Exit(code)
}

// Main runs the command like Run, without process state: it returns the exit code, writes help and
// version to stdout, and logs and errors to stderr.
func Main(ctx context.Context, name, short string, options Options, run RunFunc, args []string, stdout, stderr io.Writer,
	commands ...Command) int {
	// 1. Run the subcommand if the first argument names one.
	for _, c := range commands {
		if len(args) > 0 && args[0] == c.Name {
			return Main(ctx, name+" "+c.Name, c.Short, c.Options, c.Run, args[1:], stdout, stderr, c.Commands...)
		}
	}
	// 2. Declare the flags.
	var (
		sections Sections
		shared   commonFlags
		running  bool // run has been called, so an error is not one of usage
	)
	options.AddFlags(&sections)
	shared.addFlags(&sections)

	// 3. Define the command: print the version, or read the configuration file, complete and
	// validate the options, and run the service.
	cmd := &cobra.Command{
		Use:                name,
		Short:              short,
		Args:               rejectArgs,
		SilenceUsage:       true,
		SilenceErrors:      true,
		DisableSuggestions: true,
		CompletionOptions:  cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if v := shared.version; v != "" && v != "false" {
				return v.printVersion(stdout, name)
			}
			if shared.config != "" {
				if err := applyConfigFile(cmd.Flags(), shared.config); err != nil {
					return err
				}
			}
			if err := options.Complete(); err != nil {
				return err
			}
			if err := errors.Join(append(options.Validate(), shared.logs.validate()...)...); err != nil {
				return err
			}
			running = true
			return run(cmd.Context(), shared.logs.logger(stderr))
		},
	}
	cmd.Flags().SetNormalizeFunc(underscoresToDashes)
	sections.addTo(cmd.Flags())
	cmd.SetHelpFunc(func(*cobra.Command, []string) {
		fmt.Fprintf(stdout, "%s\n\nUsage:\n  %s [flags]\n", short, name)
		for _, c := range commands {
			fmt.Fprintf(stdout, "  %s %s [flags]    %s\n", name, c.Name, c.Short)
		}
		sections.printUsage(stdout, helpColumns)
	})

	// 4. Parse the arguments and run the command.
	cmd.SetArgs(append([]string{}, args...))
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)

	// 5. Report an error.
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(stderr, "%s: %v\n", name, err)
	if running {
		return ExitFailed
	}
	fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", name)
	return ExitUsage
}

// rejectArgs rejects arguments that are not flags. It ignores empty arguments, as Kubernetes does,
// because scripts pass them for unset variables.
func rejectArgs(cmd *cobra.Command, args []string) error {
	return cobra.NoArgs(cmd, slices.DeleteFunc(args, func(arg string) bool { return arg == "" }))
}
