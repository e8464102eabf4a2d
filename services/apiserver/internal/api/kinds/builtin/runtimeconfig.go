package builtin

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/registry"
)

// RuntimeConfig enables and disables versions of the API and single resources (specification: "API
// levels"). It is the value of --runtime-config: keys with "true" or "false", where an empty value
// means true.
//
//	api/all                          everything
//	api/ga, api/beta, api/alpha      every version of a level
//	v1, api/v1                       the core group
//	<group>/<version>                a version of a group
//	<group>/<version>/<resource>     one of its resources
//
// The narrowest key applies, in any order.
type RuntimeConfig map[string]string

// allVersions and the keys of levels stand for several versions each.
const allVersions = "api/all"

var levels = map[string]*regexp.Regexp{
	"api/ga":    regexp.MustCompile(`^v\d+$`),
	"api/beta":  regexp.MustCompile(`^v\d+beta\d+$`),
	"api/alpha": regexp.MustCompile(`^v\d+alpha\d+$`),
}

// String returns the keys and values in the form that Set accepts.
func (c *RuntimeConfig) String() string {
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(*c)) {
		pairs = append(pairs, k+"="+(*c)[k])
	}
	return strings.Join(pairs, ",")
}

// Set parses keys and values, separated by commas, and adds them to the existing keys.
func (c *RuntimeConfig) Set(text string) error {
	if *c == nil {
		*c = RuntimeConfig{}
	}
	for _, pair := range strings.Split(text, ",") {
		pair = strings.TrimSpace(pair)
		if pair == "" {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		(*c)[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return nil
}

// Type returns the name of the type in the help of flags.
func (c *RuntimeConfig) Type() string { return "mapStringString" }

func (c RuntimeConfig) lookup(key string) (on, specified bool) {
	value, specified := c[key]
	if value == "" {
		return true, specified
	}
	on, _ = strconv.ParseBool(value)
	return on, specified
}

// Validate checks the group version of every key. As in Kubernetes, versions that exist
// but are not served are valid, and so are resources that do not exist.
func (c RuntimeConfig) Validate(catalog *registry.Catalog) (errs []error) {
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("--runtime-config: "+format, args...))
	}
	if on, specified := c.lookup(allVersions); specified && !on && len(c) == 1 {
		bad("invalid key with only %s=false", allVersions)
	}
	for _, key := range slices.Sorted(maps.Keys(c)) {
		if value := c[key]; value != "" {
			if _, err := strconv.ParseBool(value); err != nil {
				bad("invalid value of %s: %q is neither true nor false", key, value)
			}
		}
		if key == allVersions || levels[key] != nil {
			continue
		}
		parts := strings.Split(groupKey(key), "/")
		if len(parts) != 2 && len(parts) != 3 {
			bad("invalid key %s", key)
			continue
		}
		gv := schema.GroupVersion{Group: parts[0], Version: parts[1]}
		switch {
		case !isKnownGroup(catalog, gv.Group):
			bad("unknown api groups %s", parts[0])
		case !catalog.Serves(gv) && !slices.Contains(unservedVersions()[gv.Group], gv.Version):
			bad("group version %s that has not been registered", gv)
		case len(parts) == 3 && parts[2] != strings.ToLower(parts[2]):
			bad("invalid key %s: group/version/resource and resource is always lowercase plural, not %q", key, parts[2])
		}
	}
	return errs
}

// unservedVersions returns the versions, by group, for which Kubernetes 1.33 has types that it does
// not serve. Command lines of older clusters name them.
func unservedVersions() map[string][]string {
	return map[string][]string{
		"admission.k8s.io":             {"v1", "v1beta1"},
		"apiextensions.k8s.io":         {"v1beta1"},
		"apiregistration.k8s.io":       {"v1beta1"},
		"apps":                         {"v1beta1", "v1beta2"},
		"authentication.k8s.io":        {"v1alpha1"},
		"authorization.k8s.io":         {"v1beta1"},
		"autoscaling":                  {"v2beta1", "v2beta2"},
		"batch":                        {"v1beta1"},
		"discovery.k8s.io":             {"v1beta1"},
		"events.k8s.io":                {"v1beta1"},
		"extensions":                   {"v1beta1"},
		"flowcontrol.apiserver.k8s.io": {"v1beta1", "v1beta2"},
		"imagepolicy.k8s.io":           {"v1alpha1"},
		"networking.k8s.io":            {"v1alpha1"},
		"node.k8s.io":                  {"v1alpha1", "v1beta1"},
		"policy":                       {"v1beta1"},
		"rbac.authorization.k8s.io":    {"v1alpha1", "v1beta1"},
		"scheduling.k8s.io":            {"v1alpha1", "v1beta1"},
	}
}

func isKnownGroup(catalog *registry.Catalog, name string) bool {
	return unservedVersions()[name] != nil ||
		slices.ContainsFunc(catalog.Groups(), func(g registry.Group) bool { return g.Name == name })
}

// groupKey converts the keys of the core group to the form of other groups, with an empty group.
func groupKey(key string) string {
	if rest, ok := strings.CutPrefix(key, "api/v1"); ok {
		return "/v1" + rest
	}
	if key == "v1" || strings.HasPrefix(key, "v1/") {
		return "/" + key
	}
	return key
}

// Serves reports whether a resource is enabled.
func (c RuntimeConfig) Serves(kind *registry.Kind) bool {
	on := !isOffByDefault(kind.GroupVersion())
	if v, specified := c.lookup(allVersions); specified {
		on = v
	}
	for key, level := range levels {
		if v, specified := c.lookup(key); specified && level.MatchString(kind.Version) {
			on = v
		}
	}
	version, resource := -1, -1 // values of the narrower keys: -1 none, 0 off, 1 on
	for key := range c {
		v, _ := c.lookup(key)
		setting := 0
		if v {
			setting = 1
		}
		switch groupKey(key) {
		case kind.Group + "/" + kind.Version:
			version = setting
		case kind.Group + "/" + kind.Version + "/" + kind.Resource:
			resource = setting
		}
	}
	if version >= 0 {
		on = version == 1
	}
	if resource >= 0 {
		on = resource == 1
	}
	return on
}

// isOffByDefault reports whether a version is below stable. All such versions were introduced after
// the release since which they are off by default (KEP-3136).
func isOffByDefault(gv schema.GroupVersion) bool { return !levels["api/ga"].MatchString(gv.Version) }
