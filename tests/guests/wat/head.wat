  ;; The types that the exports of both worlds name.
  (import "checkrein:plugin/types@0.1.0" (instance $types
    (type $stop-record (record (field "kind" string) (field "message" string) (field "issuer" string)))
    (export "stop" (type $stop (eq $stop-record)))
    (type $failure-record (record
      (field "code" string) (field "message" string) (field "stop" (option $stop))))
    (export "failure" (type (eq $failure-record)))
    (type $spec-record (record
      (field "name" string) (field "description" string) (field "parameters" string)
      (field "hints" (list string))))
    (export "tool-spec" (type (eq $spec-record)))))
  (alias export $types "failure" (type $failure))
  (alias export $types "tool-spec" (type $tool-spec))
