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
	e, err := embed.StartEtcd(c)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer e.Close()
	select {
	case <-ctx.Done():
		return nil
	case <-e.Server.StopNotify():
		return errors.New("the server has stopped")
	case err := <-e.Err():
		return fmt.Errorf("listener: %w", err)
	}
}

// Flags returns the flags of Run.
func Flags() *flag.FlagSet {
	set, _, _ := newFlagSet(embed.NewConfig())
	return set
}

// newFlagSet returns the flags that set c, and the values of two of them that c does not have.
func newFlagSet(c *embed.Config) (set *flag.FlagSet, state *flags.SelectiveStringValue, file *string) {
	set = flag.NewFlagSet("etcd", flag.ContinueOnError)
	c.AddFlags(set)
	state = flags.NewSelectiveStringValue(embed.ClusterStateFlagNew, embed.ClusterStateFlagExisting)
	set.Var(state, "initial-cluster-state", "'new' for a new cluster, 'existing' for a member that joins one.")
	file = set.String("config-file", "", "Path to a configuration file, in the place of all other flags.")
	return set, state, file
}

// parseConfig parses the flags like etcd's own program.
func parseConfig(args []string, out io.Writer) (*embed.Config, error) {
	c := embed.NewConfig()
	set, state, file := newFlagSet(c)
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
	c.ListenPeerUrls = flags.UniqueURLsFromFlag(set, "listen-peer-urls")
	c.AdvertisePeerUrls = flags.UniqueURLsFromFlag(set, "initial-advertise-peer-urls")
	c.ListenClientUrls = flags.UniqueURLsFromFlag(set, "listen-client-urls")
	c.ListenClientHttpUrls = flags.UniqueURLsFromFlag(set, "listen-client-http-urls")
	c.AdvertiseClientUrls = flags.UniqueURLsFromFlag(set, "advertise-client-urls")
	c.ListenMetricsUrls = flags.UniqueURLsFromFlag(set, "listen-metrics-urls")
	c.CORS = flags.UniqueURLsMapFromFlag(set, "cors")
	c.HostWhitelist = flags.UniqueStringsMapFromFlag(set, "host-whitelist")
	c.ClientTLSInfo.AllowedHostnames = flags.StringsFromFlag(set, "client-cert-allowed-hostname")
	c.PeerTLSInfo.AllowedCNs = flags.StringsFromFlag(set, "peer-cert-allowed-cn")
	c.PeerTLSInfo.AllowedHostnames = flags.StringsFromFlag(set, "peer-cert-allowed-hostname")
	c.CipherSuites = flags.StringsFromFlag(set, "cipher-suites")
	c.MaxConcurrentStreams = flags.Uint32FromFlag(set, "max-concurrent-streams")
	c.LogOutputs = flags.UniqueStringsFromFlag(set, "log-outputs")
	c.DiscoveryCfg.Endpoints = flags.UniqueStringsFromFlag(set, "discovery-endpoints")
	c.ClusterState = state.String()
	if flags.IsSet(set, "listen-client-urls") && !flags.IsSet(set, "advertise-client-urls") {
		c.AdvertiseClientUrls = nil // an error follows
	}
	if c.Dir == "" {
		c.Dir = c.Name + ".etcd"
	}
	if c.WarningUnaryRequestDuration == 0 {
		c.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	}
	var renamed []error
	set.Visit(func(f *flag.Flag) {
		c.FlagsExplicitlySet[f.Name] = true
		if strings.HasPrefix(f.Name, "experimental-") {
			renamed = append(renamed, fmt.Errorf("--%s was renamed: %s", f.Name, f.Usage))
		}
	})
	if err := errors.Join(renamed...); err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	// A cluster of one is named after its member.
	if _, err := c.UpdateDefaultClusterFromName(embed.NewConfig().InitialCluster); err != nil {
		c.GetLogger().Debug("no default host to advertise")
	}
	return c, nil
}
