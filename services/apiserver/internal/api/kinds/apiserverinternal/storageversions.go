// Package apiserverinternal declares the kind of the group internal.apiserver.k8s.io, v1alpha1,
// which is off by default. It has no state. Kinds returns new values for the catalog of built-in
// kinds.
package apiserverinternal

import (
	"fmt"
	"slices"
	"strings"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	content "k8s.io/apimachinery/pkg/util/validation"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// Kinds returns the kinds of the group.
func Kinds() []*registry.Kind { return []*registry.Kind{storageVersions()} }

// maxShownItems is the maximum number of servers in a table cell.
const maxShownItems = 3

// storageVersions declares the cluster-scoped kind StorageVersion.
func storageVersions() *registry.Kind {
	doc := func(name string) string {
		return columns.Doc(apiserverinternalv1alpha1.StorageVersionStatus{}, name)
	}
	return declare.Kind[apiserverinternalv1alpha1.StorageVersion, apiserverinternalv1alpha1.StorageVersionList](&registry.Kind{
		Names: registry.Names{
			Group: apiserverinternalv1alpha1.GroupName, Version: "v1alpha1",
			Resource: "storageversions", Kind: "StorageVersion", ValidateName: resourceName,
		},
		Parts: declare.SpecStatusAccessors(func(storageVersion *apiserverinternalv1alpha1.StorageVersion) (*apiserverinternalv1alpha1.StorageVersionSpec, *apiserverinternalv1alpha1.StorageVersionStatus) {
			return &storageVersion.Spec, &storageVersion.Status
		}),
		Create: registry.Create{Validate: declare.AdaptValidation(validateStatus)},
		Update: registry.Update{
			Validate: declare.AdaptUpdateValidation(
				func(validate.Field, *apiserverinternalv1alpha1.StorageVersion, *apiserverinternalv1alpha1.StorageVersion) {
					// The spec has no fields yet.
				},
			),
		},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.New(
				"CommonEncodingVersion",
				"string",
				"name",
				doc("commonEncodingVersion"),
				0,
				func(storageVersion *apiserverinternalv1alpha1.StorageVersion) any {
					if storageVersion.Status.CommonEncodingVersion == nil {
						return columns.Unset
					}
					return *storageVersion.Status.CommonEncodingVersion
				},
			),
			columns.Text("StorageVersions", doc("storageVersions"), func(storageVersion *apiserverinternalv1alpha1.StorageVersion) string {
				var servers []string
				for _, s := range storageVersion.Status.StorageVersions {
					servers = append(servers, s.APIServerID+"="+s.EncodingVersion)
				}
				return columns.First(servers, maxShownItems)
			}),
			columns.Age(),
		}},
		Subresources: []registry.Subresource{
			declare.WithResetFields(
				declare.ValidatedView("status", "StorageVersion", func(storageVersion, old *apiserverinternalv1alpha1.StorageVersion) {
					storageVersion.Spec = old.Spec
					declare.ResetMetaForStatus(storageVersion, old)
				}, func(fld validate.Field, storageVersion, _ *apiserverinternalv1alpha1.StorageVersion) {
					validateStatus(fld, storageVersion)
				}),
				"metadata",
				"spec",
			),
		},
	})
}

// resourceName requires a group and a resource.
func resourceName(name string, _ bool) (wrong []string) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return []string{"name must be in the form of <group>.<resource>"}
	}
	for _, msg := range content.IsDNS1123Subdomain(name[:dot]) {
		wrong = append(wrong, "the group segment "+msg)
	}
	for _, msg := range content.IsDNS1035Label(name[dot+1:]) {
		wrong = append(wrong, "the resource segment "+msg)
	}
	return wrong
}

// validateStatus validates the records of the servers and the conditions.
func validateStatus(fld validate.Field, storageVersion *apiserverinternalv1alpha1.StorageVersion) {
	status := fld.Child("status")
	validate.Each(status, "storageVersions", storageVersion.Status.StorageVersions, validateServer)
	validateCommon(status, &storageVersion.Status)
	seen := map[apiserverinternalv1alpha1.StorageVersionConditionType]int{}
	for i := range storageVersion.Status.Conditions {
		c, fld := &storageVersion.Status.Conditions[i], status.Index("", i)
		if first, ok := seen[c.Type]; ok {
			fld.Invalid("type", string(c.Type),
				fmt.Sprintf("the type of the condition is not unique, it also appears in conditions[%d]", first))
		}
		seen[c.Type] = i
		fld.InvalidMessages("type", string(c.Type), content.IsQualifiedName(string(c.Type)))
		// As in Kubernetes, an error of the status has the type as its value.
		fld.InvalidMessages("status", string(c.Type), content.IsQualifiedName(string(c.Status)))
		fld.RequireSetWithDetail("reason", c.Reason != "", "reason cannot be empty")
		fld.RequireSetWithDetail("message", c.Message != "", "message cannot be empty")
	}
}

// validateServer validates the record of one server. It must be able to decode the version it
// encodes.
func validateServer(fld validate.Field, version *apiserverinternalv1alpha1.ServerStorageVersion) {
	fld.CheckText("apiServerID", version.APIServerID, validate.DNSSubdomain)
	checkVersion := func(fld validate.Field, name, value string) {
		if msgs := apiVersionErrors(value); len(msgs) > 0 {
			fld.Invalid(name, value, strings.Join(msgs, ","))
		}
	}
	checkVersion(fld, "encodingVersion", version.EncodingVersion)
	validate.Each(fld, "decodableVersions", version.DecodableVersions, func(fld validate.Field, v *string) { checkVersion(fld, "", *v) })
	if !slices.Contains(version.DecodableVersions, version.EncodingVersion) {
		fld.Invalid("decodableVersions", version.DecodableVersions, "decodableVersions must include encodingVersion "+version.EncodingVersion)
	}
	validate.Each(fld, "servedVersions", version.ServedVersions, func(fld validate.Field, v *string) {
		checkVersion(fld, "", *v)
		if !slices.Contains(version.DecodableVersions, *v) {
			fld.Invalid("", *v,
				fmt.Sprintf("individual served version : %s must be included in decodableVersions : %s", *v, version.DecodableVersions))
		}
	})
}

// apiVersionErrors returns the errors of a version with an optional group, "group/version".
func apiVersionErrors(value string) (msgs []string) {
	add := func(part string, texts ...string) {
		for _, t := range texts {
			msgs = append(msgs, part+" part: "+t)
		}
	}
	group, version, hasGroup := strings.Cut(value, "/")
	switch {
	case !hasGroup:
		version = value
	case strings.Contains(version, "/"):
		const (
			pattern = "[a-z]([-a-z0-9]*[a-z0-9])?"
			detail  = "a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', " +
				"start with an alphabetic character, and end with an alphanumeric character"
		)
		return []string{"an apiVersion is " + content.RegexError(detail, pattern, "my-name", "abc-123") +
			" with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')"}
	case group == "":
		add("group", content.EmptyError())
	default:
		add("group", content.IsDNS1123Subdomain(group)...)
	}
	if version == "" {
		add("version", content.EmptyError())
	} else {
		add("version", content.IsDNS1035Label(version)...)
	}
	return msgs
}

// validateCommon requires that commonEncodingVersion is set if and only if all servers encode the
// same version.
func validateCommon(fld validate.Field, status *apiserverinternalv1alpha1.StorageVersionStatus) {
	const name = "commonEncodingVersion"
	common := status.CommonEncodingVersion
	agree := len(status.StorageVersions) > 0 // all servers encode the same version
	for i := range status.StorageVersions {
		agree = agree && status.StorageVersions[i].EncodingVersion == status.StorageVersions[0].EncodingVersion
	}
	switch {
	case !agree && common == nil:
	case !agree:
		fld.Invalid(name, *common,
			"should be nil if servers do not agree on the same encoding version, "+
				"or if there is no server reporting the supported versions yet")
	case common == nil:
		fld.Invalid(name, common, "the common encoding version is "+status.StorageVersions[0].EncodingVersion)
	case *common != status.StorageVersions[0].EncodingVersion:
		fld.Invalid(name, *common, "the actual common encoding version is "+status.StorageVersions[0].EncodingVersion)
	}
}
