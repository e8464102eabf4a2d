package definition

import (
	"encoding/json"
	"fmt"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/json/jsontext"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/apis/apiextensions/v1beta1"
)

// Paths of the parts of a stored definition that DecodeSummary reads.
var (
	summaryPaths = jsontext.Compile(
		jsontext.Fields("metadata", "name"),
		jsontext.Fields("metadata", "uid"),
		jsontext.Fields("metadata", "annotations"),
		jsontext.Fields("metadata", "finalizers"),
		jsontext.Fields("metadata", "deletionTimestamp"),
		jsontext.Fields("metadata", "generation"),
		jsontext.Fields("metadata", "creationTimestamp"),
		jsontext.Fields("spec", "group"),
		jsontext.Fields("spec", "version"),
		jsontext.Fields("spec", "scope"),
		jsontext.Fields("spec", "names"),
		jsontext.Fields("spec", "conversion"),
		jsontext.Fields("spec", "preserveUnknownFields"),
		jsontext.Fields("spec", "versions"),
		jsontext.Fields("status"),
	)
	versionPaths = jsontext.Compile(
		jsontext.Fields("name"),
		jsontext.Fields("served"),
		jsontext.Fields("storage"),
		jsontext.Fields("deprecated"),
		jsontext.Fields("deprecationWarning"),
	)
)

// SummaryOf decodes the summary of an entry of the watch cache.
func SummaryOf(entry *objects.Entry) (*v1.CustomResourceDefinition, error) {
	definition, err := DecodeSummary(entry.Summary())
	if err == nil && definition.Spec.PreserveUnknownFields {
		return DecodeSummary(entry.Stored())
	}
	return definition, err
}

// DecodeSummary decodes a stored definition without managed fields and schemas. If the definition
// preserves unknown fields, DecodeSummary decodes all of it, because the condition
// NonStructuralSchema depends on the schemas.
func DecodeSummary(stored []byte) (*v1.CustomResourceDefinition, error) {
	parts, err := summaryPaths.Find(stored, nil)
	if err != nil {
		return nil, fmt.Errorf("definition: %w", err)
	}
	definition := &v1beta1.CustomResourceDefinition{}
	for i, target := range []any{ // in the order of summaryPaths
		&definition.Name, &definition.UID, &definition.Annotations, &definition.Finalizers, &definition.DeletionTimestamp, &definition.Generation, &definition.CreationTimestamp,
		&definition.Spec.Group, &definition.Spec.Version, &definition.Spec.Scope, &definition.Spec.Names, &definition.Spec.Conversion, &definition.Spec.PreserveUnknownFields,
	} {
		if err := decodePart(parts[i], target); err != nil {
			return nil, err
		}
	}
	versions := parts[len(parts)-2]
	status := parts[len(parts)-1]
	if err := decodePart(status, &definition.Status); err != nil {
		return nil, err
	}
	if preserve := definition.Spec.PreserveUnknownFields; preserve == nil || *preserve {
		full := &v1beta1.CustomResourceDefinition{}
		if err := decodePart(stored, full); err != nil {
			return nil, err
		}
		return v1beta1.ToV1(full), nil
	}
	if definition.Spec.Versions, err = decodeVersions(versions); err != nil {
		return nil, err
	}
	return v1beta1.ToV1(definition), nil
}

// decodeVersions decodes the names and flags of the versions.
func decodeVersions(list []byte) (out []v1beta1.CustomResourceDefinitionVersion, err error) {
	if list == nil {
		return nil, nil
	}
	var parts [][]byte
	syntaxErr := jsontext.Elements(list, func(_ int, value []byte) bool {
		if parts, err = versionPaths.Find(value, parts); err != nil {
			return false
		}
		var version v1beta1.CustomResourceDefinitionVersion
		for i, target := range []any{ // in the order of versionPaths
			&version.Name, &version.Served, &version.Storage, &version.Deprecated, &version.DeprecationWarning,
		} {
			if err = decodePart(parts[i], target); err != nil {
				return false
			}
		}
		out = append(out, version)
		return true
	})
	if err == nil {
		err = syntaxErr
	}
	return out, err
}

// decodePart decodes a part of a definition if it exists.
func decodePart(part []byte, target any) error {
	if part == nil {
		return nil
	}
	if err := json.Unmarshal(part, target); err != nil {
		return fmt.Errorf("definition: %w", err)
	}
	return nil
}
