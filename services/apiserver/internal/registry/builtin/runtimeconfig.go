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

// RuntimeConfig switches versions of the API, and single resources of them, on
// and off (specification: "API levels"). It is the value of --runtime-config:
// keys with "true" or "false", where nothing means true.
//
//	api/all                          everything
//	api/ga, api/beta, api/alpha      every version of a level
//	v1, api/v1                       the core group
//	<group>/<version>                a version of a group
//	<group>/<version>/<resource>     one of its resources
//
// The narrower key counts, in any order.
type RuntimeConfig map[string]string

// Keys for more than one version, and the versions that they are for.
const allVersions = "api/all"

var levels = map[string]*regexp.Regexp{
	"api/ga":    regexp.MustCompile(`^v\d+$`),
	"api/beta":  regexp.MustCompile(`^v\d+beta\d+$`),
	"api/alpha": regexp.MustCompile(`^v\d+alpha\d+$`),
}

// String implements pflag.Value.
func (c *RuntimeConfig) String() string {
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(*c)) {
		pairs = append(pairs, k+"="+(*c)[k])
	}
	return strings.Join(pairs, ",")
}

// Set implements pflag.Value; it adds to what has been set.
func (c *RuntimeConfig) Set(text string) error {
	if *c == nil {
		*c = RuntimeConfig{}
	}
	for _, pair := range strings.Split(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		(*c)[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return nil
}

// Type implements pflag.Value.
func (c *RuntimeConfig) Type() string { return "mapStringString" }

// on is the value of a key.
func (c RuntimeConfig) on(key string) (on, given bool) {
	value, given := c[key]
	return value == "" || value == "true", given
}

// Validate checks every key against the kinds that there are.
func (c RuntimeConfig) Validate(catalog *registry.Catalog) (errs []error) {
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("--runtime-config: "+format, args...))
	}
	if on, given := c.on(allVersions); given && !on && len(c) == 1 {
		bad("invalid key with only %s=false", allVersions)
	}
	for _, key := range slices.Sorted(maps.Keys(c)) {
		if value := c[key]; value != "" {
			if b, err := strconv.ParseBool(value); err != nil || value != strconv.FormatBool(b) {
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
		case !slices.ContainsFunc(catalog.Groups(), func(g registry.Group) bool { return g.Name == gv.Group }):
			bad("unknown api groups %s", parts[0])
		case !catalog.Serves(gv):
			bad("group version %s that has not been registered", gv)
		case len(parts) == 3 && catalog.Resource(gv.WithResource(parts[2])) == nil:
			bad("group version %s has no resource %s", gv, parts[2])
		}
	}
	return errs
}

// groupKey writes the keys of the core group as those of others, with an empty
// group.
func groupKey(key string) string {
	if rest, ok := strings.CutPrefix(key, "api/v1"); ok {
		return "/v1" + rest
	}
	if key == "v1" || strings.HasPrefix(key, "v1/") {
		return "/" + key
	}
	return key
}

// Serves tells whether a resource is served.
func (c RuntimeConfig) Serves(k *registry.Kind) bool {
	on := !offByDefault(k.GroupVersion())
	if v, given := c.on(allVersions); given {
		on = v
	}
	for key, level := range levels {
		if v, given := c.on(key); given && level.MatchString(k.Version) {
			on = v
		}
	}
	version, resource := -1, -1 // what the narrower keys say: 0 off, 1 on
	for key := range c {
		v, _ := c.on(key)
		said := 0
		if v {
			said = 1
		}
		switch groupKey(key) {
		case k.Group + "/" + k.Version:
			version = said
		case k.Group + "/" + k.Version + "/" + k.Resource:
			resource = said
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

// offByDefault are the versions below stable: every one of them came after the
// release since which such versions are off (KEP-3136).
func offByDefault(gv schema.GroupVersion) bool { return !levels["api/ga"].MatchString(gv.Version) }
