package eventratelimit

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/admission/configuration"
	"binnacle/services/apiserver/internal/status"
)

// Types of limits. All events share the bucket of a Server limit. The other types have one bucket
// per namespace, per user, or per source and involved object.
const (
	Server          = "Server"
	Namespace       = "Namespace"
	User            = "User"
	SourceAndObject = "SourceAndObject"
)

// Configuration holds the limits. An event must pass all of them.
type Configuration struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Limits     []Limit `json:"limits"`
}

// Limit allows QPS events per second with bursts of Burst events in each bucket. CacheSize is the
// maximum number of buckets; 0 means 4096. If it is exceeded, the least recently used bucket is
// dropped.
type Limit struct {
	Type      string `json:"type"`
	QPS       int32  `json:"qps"`
	Burst     int32  `json:"burst"`
	CacheSize int32  `json:"cacheSize"`
}

// Load decodes and validates a configuration. data is nil if there is none, which is an error.
func Load(data []byte) (*Configuration, error) {
	var config Configuration
	if data != nil {
		if err := configuration.Decode(data, &config, schema.GroupVersionKind{Group: "eventratelimit.admission.k8s.io", Version: "v1alpha1", Kind: "Configuration"}); err != nil {
			return nil, err
		}
	}
	if errs := config.validate(); len(errs) > 0 {
		return nil, status.Aggregated(errs)
	}
	return &config, nil
}

// validate returns the errors of the configuration.
func (c *Configuration) validate() (errs field.ErrorList) {
	limits := field.NewPath("limits")
	if len(c.Limits) == 0 {
		errs = append(errs, field.Invalid(limits, c.Limits, "must not be empty"))
	}
	types := []string{Server, Namespace, User, SourceAndObject}
	for i, limit := range c.Limits {
		path := limits.Index(i)
		if !slices.Contains(types, limit.Type) {
			errs = append(errs, field.NotSupported(path.Child("type"), limit.Type, types))
		}
		if limit.Burst <= 0 {
			errs = append(errs, field.Invalid(path.Child("burst"), limit.Burst, "must be positive"))
		}
		if limit.QPS <= 0 {
			errs = append(errs, field.Invalid(path.Child("qps"), limit.QPS, "must be positive"))
		}
		if limit.Type != Server && limit.CacheSize < 0 {
			errs = append(errs, field.Invalid(path.Child("cacheSize"), limit.CacheSize, "must not be negative"))
		}
	}
	return errs
}
