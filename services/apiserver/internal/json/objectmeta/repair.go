package objectmeta

import (
	"time"

	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/json/tape"
)

// Repair returns a stored document with metadata that clients can decode. It removes
// unknown fields and fields of a wrong type, and sets a missing generation to 1. It takes ownership
// of d, and returns d if nothing changes.
func Repair(d *tape.Doc) (*tape.Doc, error) {
	m := d.Find(tape.Root, "metadata")
	if m == tape.None || d.Kind(m) != tape.Object || decodable(d, m) {
		return d, nil
	}
	clean, _, err := Clean(d.Text(m), false, true)
	if err != nil {
		d.Release()
		return nil, err
	}
	if found, err := generationPath.Find(clean, nil); err == nil && found[0] == nil {
		if clean, err = jsontext.Put(clean, []byte("1"), "generation"); err != nil {
			d.Release()
			return nil, err
		}
	}
	start, end := d.Span(m)
	raw := d.Raw()
	all := make([]byte, 0, len(raw)+len(clean))
	all = append(append(append(all, raw[:start]...), clean...), raw[end:]...)
	d.Release()
	return tape.Parse(all)
}

var generationPath = jsontext.Compile(jsontext.Fields("generation"))

// metaFields, ownerFields and managerFields hold the type checks for the fields of metadata, of
// owner references and of managed fields entries.
var (
	metaFields = map[string]func(*tape.Doc, tape.Ref) bool{
		"name": isString, "generateName": isString, "namespace": isString, "uid": isString, "resourceVersion": isString, "selfLink": isString,
		"creationTimestamp": isTime, "deletionTimestamp": isTime,
		"generation":                 func(d *tape.Doc, v tape.Ref) bool { n, ok := intOf(d, v); return ok && n != 0 },
		"deletionGracePeriodSeconds": func(d *tape.Doc, v tape.Ref) bool { _, ok := intOf(d, v); return ok },
		"labels":                     isStringMap, "annotations": isStringMap,
		"finalizers":      listOf(isString),
		"ownerReferences": listOf(objectOf(ownerFields)),
		"managedFields":   listOf(objectOf(managerFields)),
	}
	ownerFields = map[string]func(*tape.Doc, tape.Ref) bool{
		"apiVersion": isString, "kind": isString, "name": isString, "uid": isString, "controller": isBool, "blockOwnerDeletion": isBool,
	}
	managerFields = map[string]func(*tape.Doc, tape.Ref) bool{
		"manager": isString, "operation": isString, "apiVersion": isString, "fieldsType": isString, "subresource": isString, "time": isTime,
		"fieldsV1": func(d *tape.Doc, v tape.Ref) bool { return d.Kind(v) == tape.Object },
	}
	isMetadata = objectOf(metaFields)
)

// decodable reports whether metadata has a generation and only known fields of the right types. It
// decodes nothing because it runs for each object that is read.
func decodable(d *tape.Doc, m tape.Ref) bool {
	return d.Find(m, "generation") != tape.None && isMetadata(d, m)
}

func isString(d *tape.Doc, v tape.Ref) bool { return d.Kind(v) == tape.String }

func isBool(d *tape.Doc, v tape.Ref) bool { return d.Kind(v) == tape.True || d.Kind(v) == tape.False }

func intOf(d *tape.Doc, v tape.Ref) (int64, bool) {
	if d.Kind(v) != tape.Number {
		return 0, false
	}
	return d.Int(v)
}

func isTime(d *tape.Doc, v tape.Ref) bool {
	if d.Kind(v) != tape.String {
		return false
	}
	_, err := time.Parse(time.RFC3339, d.String(v))
	return err == nil
}

func isStringMap(d *tape.Doc, v tape.Ref) bool {
	return d.Kind(v) == tape.Object && (d.Len(v) == 0 || StringsOnly(d, v, 1))
}

func listOf(item func(*tape.Doc, tape.Ref) bool) func(*tape.Doc, tape.Ref) bool {
	return func(d *tape.Doc, v tape.Ref) bool {
		if d.Kind(v) != tape.Array {
			return false
		}
		for i, end := d.First(v), d.Next(v); i < end; i = d.Next(i) {
			if !item(d, i) {
				return false
			}
		}
		return true
	}
}

func objectOf(fields map[string]func(*tape.Doc, tape.Ref) bool) func(*tape.Doc, tape.Ref) bool {
	return func(d *tape.Doc, v tape.Ref) bool {
		if d.Kind(v) != tape.Object {
			return false
		}
		for k, end := d.First(v), d.Next(v); k < end; k = d.Next(k + 1) {
			if is := fields[d.String(k)]; is == nil || !is(d, k+1) {
				return false
			}
		}
		return true
	}
}
