package coordination

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apiversion "k8s.io/apimachinery/pkg/util/version"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// leaseCandidates returns a kind that is served in beta and alpha only, and so off by default.
func leaseCandidates() *registry.Kind {
	doc := func(name string) string { return columns.Doc(coordinationv1beta1.LeaseCandidateSpec{}, name) }
	return declare.Kind[coordinationv1beta1.LeaseCandidate, coordinationv1beta1.LeaseCandidateList](&registry.Kind{
		Names: registry.Names{
			Group:      group,
			Version:    "v1beta1",
			Resource:   "leasecandidates",
			Kind:       "LeaseCandidate",
			Namespaced: true,
			// The name is the identity of the candidate, such as a host name with a suffix.
			ValidateName: func(name string, _ bool) []string { return validate.DataKey(name) },
		},
		Create: registry.Create{Validate: declare.AdaptValidation(validateLeaseCandidate)},
		Update: registry.Update{
			AllowCreateOnUpdate:    true,
			RequireResourceVersion: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, c, old *coordinationv1beta1.LeaseCandidate) {
				validateLeaseCandidate(fld, c)
				fld.Child("spec").CheckImmutable("leaseName", c.Spec.LeaseName, old.Spec.LeaseName)
			}),
		},
		Presentation: registry.Presentation{
			Selectable: []registry.SelectableField{{Label: "spec.leaseName"}},
			Columns: []registry.Column{
				columns.Name(),
				columns.Text(
					"LeaseName",
					doc("leaseName"),
					func(c *coordinationv1beta1.LeaseCandidate) string { return c.Spec.LeaseName },
				),
				columns.Text(
					"BinaryVersion",
					doc("binaryVersion"),
					func(c *coordinationv1beta1.LeaseCandidate) string { return c.Spec.BinaryVersion },
				),
				columns.Text(
					"EmulationVersion",
					doc("emulationVersion"),
					func(c *coordinationv1beta1.LeaseCandidate) string { return c.Spec.EmulationVersion },
				),
				columns.Age(),
			},
		},
	})
}

func validateLeaseCandidate(fld validate.Field, c *coordinationv1beta1.LeaseCandidate) {
	s, spec := &c.Spec, fld.Child("spec")
	spec.RequireSet("leaseName", s.LeaseName != "")
	emulated := parseVersion(spec, "emulationVersion", s.EmulationVersion)
	spec.RequireSet("binaryVersion", s.BinaryVersion != "")
	binary := parseVersion(spec, "binaryVersion", s.BinaryVersion)
	if s.BinaryVersion != "" && s.EmulationVersion != "" && binary.LessThan(emulated) {
		spec.Invalid("binaryVersion", s.BinaryVersion, "must be greater than or equal to `emulationVersion`")
	}
	if s.Strategy == "" {
		spec.Required("strategy", "")
		return
	}
	if s.Strategy == coordinationv1.OldestEmulationVersion {
		spec.RequireSetWithDetail("emulationVersion", !emulated.EqualTo(noVersion()),
			"must be specified when `strategy` is 'OldestEmulationVersion'")
	}
	validateStrategy(spec.Child("strategy"), s.Strategy)
}

// parseVersion requires an empty or a semantic version, and returns it. An invalid one counts as
// the oldest of all.
func parseVersion(fld validate.Field, name, text string) *apiversion.Version {
	if text == "" {
		return noVersion()
	}
	version, err := apiversion.ParseSemantic(text)
	if err != nil || len(validate.SemanticVersion(text)) > 0 { // bounds the size of the numbers
		fld.Invalid(name, text, "must be a valid semantic version")
		return noVersion()
	}
	return version
}

func noVersion() *apiversion.Version { return apiversion.MustParseSemantic("0.0.0") }
