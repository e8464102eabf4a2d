package objectmeta

import (
	"slices"
	"time"

	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/json/tape"
)

// Repair returns a stored document with metadata that clients can decode. It removes unknown fields
// and fields of a wrong type, and sets a missing generation to 1. It takes ownership of doc, and
// returns doc if nothing changes.
func Repair(doc *tape.Doc) (*tape.Doc, error) {
	metadata := doc.Find(tape.Root, "metadata")
	if metadata == tape.None || doc.Kind(metadata) != tape.Object || isDecodable(doc, metadata) {
		return doc, nil
	}
	clean, _, err := Clean(doc.Text(metadata), false, true)
	if err != nil {
		doc.Release()
		return nil, err
	}
	found, err := generationPath.Find(clean, nil)
	if err == nil && found[0] == nil {
		clean, err = jsontext.Put(clean, []byte("1"), "generation")
		if err != nil {
			doc.Release()
			return nil, err
		}
	}
	start, end := doc.Span(metadata)
	raw := doc.Raw()
	repaired := slices.Concat(raw[:start], clean, raw[end:])
	doc.Release()
	return tape.Parse(repaired)
}

var generationPath = jsontext.Compile(jsontext.Fields("generation"))

// typeCheck reports whether a value has the right type.
type typeCheck = func(*tape.Doc, tape.Ref) bool

// metaFields, ownerFields and managerFields hold the type checks for the fields of metadata, of
// owner references and of managed fields entries.
var (
	metaFields = map[string]typeCheck{
		"name":                       isString,
		"generateName":               isString,
		"namespace":                  isString,
		"uid":                        isString,
		"resourceVersion":            isString,
		"selfLink":                   isString,
		"creationTimestamp":          isTime,
		"deletionTimestamp":          isTime,
		"generation":                 isNonZeroInt,
		"deletionGracePeriodSeconds": isInt,
		"labels":                     isStringMap,
		"annotations":                isStringMap,
		"finalizers":                 listOf(isString),
		"ownerReferences":            listOf(objectOf(ownerFields)),
		"managedFields":              listOf(objectOf(managerFields)),
	}
	ownerFields = map[string]typeCheck{
		"apiVersion":         isString,
		"kind":               isString,
		"name":               isString,
		"uid":                isString,
		"controller":         isBool,
		"blockOwnerDeletion": isBool,
	}
	managerFields = map[string]typeCheck{
		"manager":     isString,
		"operation":   isString,
		"apiVersion":  isString,
		"fieldsType":  isString,
		"subresource": isString,
		"time":        isTime,
		"fieldsV1":    isObject,
	}
	isMetadata = objectOf(metaFields)
)

// isDecodable reports whether metadata has a generation and only known fields of the right types.
// It decodes nothing because it runs for each object that is read.
func isDecodable(d *tape.Doc, m tape.Ref) bool {
	return d.Find(m, "generation") != tape.None && isMetadata(d, m)
}

func isString(d *tape.Doc, v tape.Ref) bool { return d.Kind(v) == tape.String }

func isBool(d *tape.Doc, v tape.Ref) bool { return d.Kind(v) == tape.True || d.Kind(v) == tape.False }

func isObject(d *tape.Doc, v tape.Ref) bool { return d.Kind(v) == tape.Object }

func isInt(doc *tape.Doc, value tape.Ref) bool {
	if doc.Kind(value) != tape.Number {
		return false
	}
	_, ok := doc.Int(value)
	return ok
}

func isNonZeroInt(doc *tape.Doc, value tape.Ref) bool {
	if doc.Kind(value) != tape.Number {
		return false
	}
	n, ok := doc.Int(value)
	return ok && n != 0
}

func isTime(doc *tape.Doc, value tape.Ref) bool {
	if doc.Kind(value) != tape.String {
		return false
	}
	_, err := time.Parse(time.RFC3339, doc.String(value))
	return err == nil
}

func isStringMap(d *tape.Doc, v tape.Ref) bool {
	return d.Kind(v) == tape.Object && (d.Len(v) == 0 || StringsOnly(d, v, 1))
}

// listOf returns the check for arrays whose elements pass a check.
func listOf(isElement typeCheck) typeCheck {
	return func(doc *tape.Doc, value tape.Ref) bool {
		if doc.Kind(value) != tape.Array {
			return false
		}
		for i, end := doc.First(value), doc.Next(value); i < end; i = doc.Next(i) {
			if !isElement(doc, i) {
				return false
			}
		}
		return true
	}
}

// objectOf returns the check for objects with only the given fields, which pass their checks.
func objectOf(fields map[string]typeCheck) typeCheck {
	return func(doc *tape.Doc, value tape.Ref) bool {
		if doc.Kind(value) != tape.Object {
			return false
		}
		for k, end := doc.First(value), doc.Next(value); k < end; k = doc.Next(k + 1) {
			check := fields[doc.String(k)]
			if check == nil || !check(doc, k+1) {
				return false
			}
		}
		return true
	}
}
