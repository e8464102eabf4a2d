package builtin

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/registry"
)

// Emulation is the version of Kubernetes whose APIs are served. APIs introduced later are not.
type Emulation struct {
	// Minor is the minor version of Kubernetes 1.
	Minor int
	// Forward also serves newer versions, above alpha, of served resources.
	Forward bool
	// Named also serves later APIs that --runtime-config names.
	Named bool
}

// Serves returns a function that reports whether a kind of a catalog is served, according to its
// gate, the configuration and the version. It returns an error if the configuration names a later
// resource, unless Named is set.
func (e Emulation) Serves(
	all *registry.Catalog,
	config RuntimeConfig,
	gate func(*registry.Kind) bool,
) (func(*registry.Kind) bool, error) {
	types, served := Documented(), map[*registry.Kind]bool{}
	for _, group := range all.Groups() {
		servedInOlder := map[string]bool{}              // resources with a served older version
		for i := len(group.Versions) - 1; i >= 0; i-- { // versions are in the order of preference, newest first
			var servedInThis []string
			for _, kind := range all.Kinds() {
				if kind.Group != group.Name || kind.Version != group.Versions[i] {
					continue
				}
				yes, err := e.serves(types, kind, config, servedInOlder[kind.Resource])
				if err != nil {
					return nil, err
				}
				if yes && gate(kind) {
					served[kind] = true
					servedInThis = append(servedInThis, kind.Resource)
				}
			}
			for _, r := range servedInThis {
				servedInOlder[r] = true
			}
		}
	}
	return func(kind *registry.Kind) bool { return served[kind] }, nil
}

// serves reports whether a kind is served in the emulated version: by its lifecycle, or because the
// configuration names it. servedInOlder states whether an older version of the resource is served.
func (e Emulation) serves(types *runtime.Scheme, kind *registry.Kind, config RuntimeConfig, servedInOlder bool) (bool, error) {
	introduced, removed := lifecycle(types, kind)
	if removed != 0 && removed <= e.Minor {
		return false, nil
	}
	if introduced <= e.Minor {
		return config.Serves(kind), nil
	}
	ofVersion, ofResource := config.isNamed(kind)
	switch {
	case e.Forward && servedInOlder && !levels["api/alpha"].MatchString(kind.Version) && !config.isDenied(kind):
		return true, nil
	case e.Named && (ofVersion || ofResource):
		return config.Serves(kind), nil
	case ofResource:
		return false, fmt.Errorf("cannot enable resource %s in runtime-config because it is introduced at 1.%d after the current version 1.%d. Consider setting --runtime-config-emulation-forward-compatible=true",
			kind.GVR(), introduced, e.Minor)
	default:
		return false, nil
	}
}

// lifecycle returns the minor versions of Kubernetes 1 that introduced and removed a kind,
// according to its type; 0 if the type does not state them.
func lifecycle(types *runtime.Scheme, k *registry.Kind) (introduced, removed int) {
	obj, err := types.New(k.GroupVersion().WithKind(k.Kind))
	if err != nil {
		return 0, 0
	}
	if o, ok := obj.(interface {
		APILifecycleIntroduced() (major, minor int)
	}); ok {
		_, introduced = o.APILifecycleIntroduced()
	}
	if o, ok := obj.(interface {
		APILifecycleRemoved() (major, minor int)
	}); ok {
		_, removed = o.APILifecycleRemoved()
	}
	return introduced, removed
}

// isNamed reports whether the configuration explicitly enables the kind's version, or its resource.
func (c RuntimeConfig) isNamed(kind *registry.Kind) (ofVersion, ofResource bool) {
	for key := range c {
		on, _ := c.lookup(key)
		switch groupKey(key) {
		case kind.Group + "/" + kind.Version:
			ofVersion = on
		case kind.Group + "/" + kind.Version + "/" + kind.Resource:
			ofResource = on
		}
	}
	return ofVersion, ofResource
}

// isDenied reports whether the configuration explicitly disables the kind.
func (c RuntimeConfig) isDenied(k *registry.Kind) bool {
	for key := range c {
		if at := groupKey(key); at == k.Group+"/"+k.Version || at == k.Group+"/"+k.Version+"/"+k.Resource {
			if on, _ := c.lookup(key); !on {
				return true
			}
		}
	}
	return false
}
