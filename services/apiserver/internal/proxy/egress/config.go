package egress

import (
	"errors"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// Configuration is the content of the file (Kubernetes: EgressSelectorConfiguration).
type Configuration struct {
	metav1.TypeMeta  `json:",inline"`
	EgressSelections []Selection `json:"egressSelections"`
}

// Selection configures the connections to one network.
type Selection struct {
	// Name is the name of the network, case-insensitive.
	Name       string     `json:"name"`
	Connection Connection `json:"connection"`
}

// Connection configures a proxy, or none for Direct.
type Connection struct {
	ProxyProtocol Protocol   `json:"proxyProtocol,omitempty"`
	Transport     *Transport `json:"transport,omitempty"`
}

// Protocol is the protocol of a proxy.
type Protocol string

// Protocols of proxies.
const (
	Direct      Protocol = "Direct"
	HTTPConnect Protocol = "HTTPConnect"
	GRPC        Protocol = "GRPC"
)

// Transport configures the connection to the proxy. Exactly one of its fields is set.
type Transport struct {
	TCP *TCPTransport `json:"tcp,omitempty"`
	UDS *UDSTransport `json:"uds,omitempty"`
}

// TCPTransport connects to a proxy at a URL.
type TCPTransport struct {
	URL       string     `json:"url,omitempty"`
	TLSConfig *TLSConfig `json:"tlsConfig,omitempty"`
}

// UDSTransport connects to a proxy at a Unix domain socket.
type UDSTransport struct {
	UDSName string `json:"udsName,omitempty"`
}

// TLSConfig holds the paths of two things: the CA bundle that verifies the proxy, and this server's
// client key pair.
type TLSConfig struct {
	CABundle   string `json:"caBundle,omitempty"`
	ClientKey  string `json:"clientKey,omitempty"`
	ClientCert string `json:"clientCert,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (c *Configuration) DeepCopyObject() runtime.Object {
	out := *c
	out.EgressSelections = nil
	for _, s := range c.EgressSelections {
		if t := s.Connection.Transport; t != nil {
			s.Connection.Transport = t.copy()
		}
		out.EgressSelections = append(out.EgressSelections, s)
	}
	return &out
}

// copy returns a deep copy.
func (t *Transport) copy() *Transport {
	out := &Transport{}
	if t.TCP != nil {
		out.TCP = new(*t.TCP)
		if t.TCP.TLSConfig != nil {
			out.TCP.TLSConfig = new(*t.TCP.TLSConfig)
		}
	}
	if t.UDS != nil {
		out.UDS = new(*t.UDS)
	}
	return out
}

const (
	configGroup = "apiserver.k8s.io"
	configKind  = "EgressSelectorConfiguration"
	// maxConfigBytes is the maximum size of the file.
	maxConfigBytes = 1 << 20
)

// Read reads and validates a file. Unknown fields are an error. Errors have the wording of
// Kubernetes.
func Read(file string) (*Configuration, error) {
	c, err := readFile(file)
	if err != nil {
		return nil, fmt.Errorf("failed to read egress selector config: %w", err)
	}
	if err := c.validate().ToAggregate(); err != nil {
		return nil, fmt.Errorf("failed to validate egress selector configuration: %w", err)
	}
	return c, nil
}

// readFile reads and decodes an EgressSelectorConfiguration.
func readFile(file string) (*Configuration, error) {
	data, err := os.ReadFile(file)
	if err == nil && len(data) > maxConfigBytes {
		err = errors.New("the file is too long")
	}
	if err != nil {
		return nil, fmt.Errorf("unable to read egress selector configuration from %q [%w]", file, err)
	}
	scheme := runtime.NewScheme()
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: configGroup, Version: version, Kind: configKind}, &Configuration{})
	}
	obj, kind, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	c, ok := obj.(*Configuration)
	if !ok {
		return nil, fmt.Errorf("unexpected config type: %v", kind)
	}
	return c, nil
}
