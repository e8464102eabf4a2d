package represent

import (
	"fmt"
	"net/http"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/negotiate"
)

// WriteObject answers with one object. An error is found before anything is sent.
func (f *Form) WriteObject(w http.ResponseWriter, r *http.Request, code int, s Shown) error {
	s, err := f.prepared(r.Context(), s)
	if err != nil {
		return err
	}
	var b []byte
	switch {
	case f.proto() && f.partial():
		b, err = f.res.Coder.AppendPartialProto(nil, f.MetaVersion, s.Item)
	case f.proto():
		b, err = f.res.Coder.AppendProto(nil, s.Item)
	case f.As == negotiate.Itself && f.Media == api.MediaJSON && !f.Pretty:
		return f.writeKept(w, r, code, s)
	default:
		if b, err = f.appendJSON(nil, s); err == nil {
			b, err = f.dress(b)
		}
	}
	if err != nil {
		return err
	}
	writeBody(w, r, code, f.Media, b)
	return nil
}

// writeKept answers with the kept JSON of an entry, which is not copied.
func (f *Form) writeKept(w http.ResponseWriter, r *http.Request, code int, s Shown) error {
	frame, t, err := f.frame(s, false)
	if err != nil {
		return err
	}
	obj := frame.Object(t)
	h := w.Header()
	h.Set("Content-Type", f.Media)
	h.Set("Cache-Control", "no-cache, private")
	h.Set("Content-Length", fmt.Sprint(len(obj)+1))
	SendWarnings(w, r)
	w.WriteHeader(code)
	_, _ = w.Write(obj) // the client is gone; there is nobody to tell
	_, _ = w.Write(newline)
	return nil
}

var newline = []byte("\n")

// dress turns whole JSON into what was asked for: YAML, CBOR, indented, or as it
// is with a newline.
func (f *Form) dress(b []byte) ([]byte, error) {
	switch {
	case f.Media == api.MediaYAML:
		return codec.JSONToYAML(b)
	case f.cbor():
		return codec.JSONToCBOR(b)
	case f.Pretty:
		return codec.Indent(b)
	}
	return append(b, '\n'), nil
}
