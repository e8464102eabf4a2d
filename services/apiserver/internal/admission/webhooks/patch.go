package webhooks

import (
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// decodePatch reads a JSON patch.
func decodePatch(raw []byte) (jsonpatch.Patch, error) { return jsonpatch.DecodePatch(raw) }

// maxOperations bounds a patch, as that of a client: each may move a whole list.
const maxOperations = 10000
