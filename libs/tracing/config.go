package tracing

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Options holds the flags of tracing.
type Options struct{ ConfigFile string }

// AddFlags declares the flag.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ConfigFile, "tracing-config-file", o.ConfigFile,
		"File with the tracing configuration: the collector and the sampling rate (TracingConfiguration, apiserver.config.k8s.io/v1beta1). If empty, tracing is disabled.")
}

// Read reads and validates the file. It returns nil without a file.
func (o *Options) Read() (*Configuration, error) {
	if o.ConfigFile == "" {
		return nil, nil
	}
	configuration, err := readFile(o.ConfigFile)
	if err != nil {
		return nil, fmt.Errorf("--tracing-config-file: failed to read tracing config: %w", err)
	}
	if err := configuration.validate().ToAggregate(); err != nil {
		return nil, fmt.Errorf("--tracing-config-file: failed to validate tracing configuration: %w", err)
	}
	return configuration, nil
}

// Configuration is the content of the file (Kubernetes: TracingConfiguration).
type Configuration struct {
	metav1.TypeMeta `json:",inline"`
	// Endpoint of the collector: host:port, or a gRPC target with the scheme dns, unix or
	// unix-abstract; nil means localhost:4317. The connection is not encrypted.
	Endpoint *string `json:"endpoint,omitempty"`
	// SamplingRatePerMillion is the rate for spans without a parent; nil means none.
	SamplingRatePerMillion *int32 `json:"samplingRatePerMillion,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (c *Configuration) DeepCopyObject() runtime.Object {
	out := *c
	if c.Endpoint != nil {
		out.Endpoint = new(*c.Endpoint)
	}
	if c.SamplingRatePerMillion != nil {
		out.SamplingRatePerMillion = new(*c.SamplingRatePerMillion)
	}
	return &out
}

const (
	configGroup = "apiserver.config.k8s.io"
	configKind  = "TracingConfiguration"
	// maxConfigBytes bounds the size of the file.
	maxConfigBytes = 1 << 20
)

// readFile reads and validates a TracingConfiguration.
func readFile(file string) (*Configuration, error) {
	data, err := os.ReadFile(file)
	if err == nil && len(data) > maxConfigBytes {
		err = errors.New("the file is too long")
	}
	if err != nil {
		return nil, fmt.Errorf("unable to read tracing configuration from %q: %w", file, err)
	}
	scheme := runtime.NewScheme()
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: configGroup, Version: version, Kind: configKind},
			&Configuration{})
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	obj, _, err := decoder.Decode(data, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("unable to decode tracing configuration data: %w", err)
	}
	c, ok := obj.(*Configuration)
	if !ok {
		return nil, fmt.Errorf("unable to decode tracing configuration data: %T", obj)
	}
	return c, nil
}

const million = 1_000_000

func (c *Configuration) validate() (errs field.ErrorList) {
	if r := c.SamplingRatePerMillion; r != nil {
		path := field.NewPath("samplingRatePerMillion")
		if *r < 0 {
			errs = append(errs, field.Invalid(path, *r, "sampling rate must be positive"))
		}
		if *r > million {
			errs = append(errs, field.Invalid(path, *r, "sampling rate per million must be less than or equal to one million"))
		}
	}
	if c.Endpoint != nil {
		errs = append(errs, checkEndpoint(*c.Endpoint, field.NewPath("endpoint"))...)
	}
	return errs
}

// checkEndpoint returns an error for an endpoint with an unsupported scheme.
func checkEndpoint(endpoint string, path *field.Path) field.ErrorList {
	if !strings.Contains(endpoint, "//") {
		endpoint = "dns://" + endpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return field.ErrorList{field.Invalid(path, endpoint, err.Error())}
	}
	switch u.Scheme {
	case "dns", "unix", "unix-abstract":
		return nil
	}
	return field.ErrorList{field.Invalid(path, endpoint, fmt.Sprintf(
		"unsupported scheme: %v.  Options are none, dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md", u.Scheme))}
}
