// Package etcd runs an ordinary member of an ordinary etcd cluster, with etcd's own flags, for
// suites that contain everything in one binary. It omits other functions of etcd's program: its
// gateway and proxy, environment variables, and renamed flags.
package etcd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"go.etcd.io/etcd/pkg/v3/flags"
	"go.etcd.io/etcd/server/v3/embed"
)

// Run runs a member until ctx ends. For --help it writes to out and returns flag.ErrHelp.
func Run(ctx context.Context, args []string, out io.Writer) error {
	c, err := parseConfig(args, out)
	if err != nil {
		return err
	}
	etcd, err := embed.StartEtcd(c)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer etcd.Close()
	select {
	case <-ctx.Done():
		return nil
	case <-etcd.Server.StopNotify():
		return errors.New("the server has stopped")
	case err := <-etcd.Err():
		return fmt.Errorf("listener: %w", err)
	}
}

// Flags returns the flags of Run.
func Flags() *flag.FlagSet {
	flags, _, _ := newFlagSet(embed.NewConfig())
	return flags
}

// newFlagSet returns the flags that set c, and the values of two of them that c does not have.
func newFlagSet(config *embed.Config) (set *flag.FlagSet, state *flags.SelectiveStringValue, file *string) {
	set = flag.NewFlagSet("etcd", flag.ContinueOnError)
	config.AddFlags(set)
	state = flags.NewSelectiveStringValue(embed.ClusterStateFlagNew, embed.ClusterStateFlagExisting)
	set.Var(state, "initial-cluster-state", "'new' for a new cluster, 'existing' for a member that joins one.")
	file = set.String("config-file", "", "Path to a configuration file, in the place of all other flags.")
	return set, state, file
}

// parseConfig parses the flags like etcd's own program.
func parseConfig(args []string, out io.Writer) (*embed.Config, error) {
	config := embed.NewConfig()
	set, state, file := newFlagSet(config)
	set.SetOutput(out)
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("%q is not a flag", set.Arg(0))
	}
	if *file != "" {
		return embed.ConfigFromFile(*file)
	}
	config.ListenPeerUrls = flags.UniqueURLsFromFlag(set, "listen-peer-urls")
	config.AdvertisePeerUrls = flags.UniqueURLsFromFlag(set, "initial-advertise-peer-urls")
	config.ListenClientUrls = flags.UniqueURLsFromFlag(set, "listen-client-urls")
	config.ListenClientHttpUrls = flags.UniqueURLsFromFlag(set, "listen-client-http-urls")
	config.AdvertiseClientUrls = flags.UniqueURLsFromFlag(set, "advertise-client-urls")
	config.ListenMetricsUrls = flags.UniqueURLsFromFlag(set, "listen-metrics-urls")
	config.CORS = flags.UniqueURLsMapFromFlag(set, "cors")
	config.HostWhitelist = flags.UniqueStringsMapFromFlag(set, "host-whitelist")
	config.ClientTLSInfo.AllowedHostnames = flags.StringsFromFlag(set, "client-cert-allowed-hostname")
	config.PeerTLSInfo.AllowedCNs = flags.StringsFromFlag(set, "peer-cert-allowed-cn")
	config.PeerTLSInfo.AllowedHostnames = flags.StringsFromFlag(set, "peer-cert-allowed-hostname")
	config.CipherSuites = flags.StringsFromFlag(set, "cipher-suites")
	config.MaxConcurrentStreams = flags.Uint32FromFlag(set, "max-concurrent-streams")
	config.LogOutputs = flags.UniqueStringsFromFlag(set, "log-outputs")
	config.DiscoveryCfg.Endpoints = flags.UniqueStringsFromFlag(set, "discovery-endpoints")
	config.ClusterState = state.String()
	if flags.IsSet(set, "listen-client-urls") && !flags.IsSet(set, "advertise-client-urls") {
		config.AdvertiseClientUrls = nil // an error follows
	}
	if config.Dir == "" {
		config.Dir = config.Name + ".etcd"
	}
	if config.WarningUnaryRequestDuration == 0 {
		config.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	}
	var renamed []error
	set.Visit(func(f *flag.Flag) {
		config.FlagsExplicitlySet[f.Name] = true
		if strings.HasPrefix(f.Name, "experimental-") {
			renamed = append(renamed, fmt.Errorf("--%s was renamed: %s", f.Name, f.Usage))
		}
	})
	if err := errors.Join(renamed...); err != nil {
		return nil, err
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	// A cluster of one is named after its member.
	if _, err := config.UpdateDefaultClusterFromName(embed.NewConfig().InitialCluster); err != nil {
		config.GetLogger().Debug("no default host to advertise")
	}
	return config, nil
}
