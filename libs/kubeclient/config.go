package kubeclient

import (
	"errors"
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"binnacle/libs/api"
	"binnacle/libs/options"
	"binnacle/libs/version"
)

const (
	defaultQPS   = 50
	defaultBurst = 100
	dialTimeout  = 10 * time.Second
	keepAlive    = 30 * time.Second
)

// Options holds the address of the API server and the client credentials.
type Options struct {
	Kubeconfig string
	Master     string
	QPS        float32
	Burst      int
}

// NewOptions returns the defaults.
func NewOptions() *Options { return &Options{QPS: defaultQPS, Burst: defaultBurst} }

// AddFlags declares the flags in the section "API client".
func (o *Options) AddFlags(s *options.Sections) {
	flags := s.Set("API client")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"kubeconfig file with the API server's address and client credentials; without this and --master, those of the pod")
	flags.StringVar(&o.Master, "master", o.Master, "address of the API server; overrides that of the kubeconfig")
	flags.Float32Var(&o.QPS, "kube-api-qps", o.QPS, "requests per second to the API server")
	flags.IntVar(&o.Burst, "kube-api-burst", o.Burst, "number of requests to the API server in a burst above --kube-api-qps")
}

// Validate implements options.Options.
func (o *Options) Validate() []error {
	var errs []error
	if o.QPS <= 0 {
		errs = append(errs, fmt.Errorf("--kube-api-qps must be positive, got %v", o.QPS))
	}
	if o.Burst <= 0 {
		errs = append(errs, fmt.Errorf("--kube-api-burst must be positive, got %d", o.Burst))
	}
	return errs
}

// Config returns the configuration for clients of a component, whose name is in the User-Agent.
func (o *Options) Config(component string) (*rest.Config, error) {
	config, err := o.loadConfig()
	if err != nil && o.Kubeconfig != "" {
		return nil, fmt.Errorf("client configuration: --kubeconfig: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("client configuration: %w", err)
	}
	config.UserAgent = version.UserAgent(component)
	config.QPS = o.QPS
	config.Burst = o.Burst
	config.ContentType = api.MediaProtobuf
	config.AcceptContentTypes = api.MediaProtobuf + "," + api.MediaJSON
	config.Wrap(newBoundedTransports())
	config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	return config, nil
}

// loadConfig returns the client configuration of --kubeconfig, --master or the pod.
func (o *Options) loadConfig() (*rest.Config, error) {
	if o.Kubeconfig == "" && o.Master == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("neither --kubeconfig nor --master is set, and the process does not run in a pod")
		}
		return config, err
	}
	// An empty path must not select the caller's own kubeconfig.
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: o.Kubeconfig}
	overrides := &clientcmd.ConfigOverrides{}
	overrides.ClusterInfo.Server = o.Master
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
}
